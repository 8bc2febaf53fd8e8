// The sentence about a reservation: by whom the lock is reserved, until when and why.

import { html } from "../view.js";
import { now, tick } from "../model/clock.js";
import { appointment, duration, exact } from "../model/format.js";
import { plain } from "../model/visible.js";
import { Foreign } from "./text.js";

/**
 * In a sentence. `owner`: who is named if no key is known. `expiresAt`: the end of the lease, on our clock; without it the
 * time that is left is not said.
 */
export function Reserved({ reservation: { until, reason, reserved_by }, owner, expiresAt }) {
  const by = reserved_by ?? owner;
  tick.value;
  return html`Reserved${by && html` by <${Foreign} value=${by} />`} until <${End} at=${until} />${expiresAt !== undefined && ` (in ${duration(expiresAt - now())})`}<${Because} reason=${reason} />`;
}

/** In a cell of a table, where the state says that the lock is reserved, and a column how much time is left. */
export function ReservedCell({ lock: { owner, reservation } }) {
  const { until, reason, reserved_by: by } = reservation;
  const who = by ?? owner;
  const title = `Reserved${who ? ` by ${plain(who)}` : ""} until ${appointment(new Date(until))}${reason ? ` because ${plain(reason)}` : ""}`;
  return html`<span class="reservation" title=${title}>
    <span class="out-of-sight">Reserved ${who && "by "}</span>${who && html`<${Foreign} value=${who} />${" "}`}until <${End} at=${until} /><${Because} reason=${reason} />${owner && owner !== who && html`, owner <${Foreign} value=${owner} />`}
  </span>`;
}

function End({ at }) {
  const end = new Date(at);
  return html`<time datetime=${at} title=${exact(end)}>${appointment(end)}</time>`;
}

const Because = ({ reason }) => reason && html` because <${Foreign} value=${reason} whole />`;
