// Takes the lock away from its holder, or from one or all of those who share it, at once or after asking for it: says
// whom it hits, and wants a reason.

import { html, useLayoutEffect, useRef, useSignal } from "../../view.js";
import { plural } from "../../model/format.js";
import { Dialog } from "../../parts/dialog.js";
import { ownerOf } from "../../parts/holders.js";
import { Icon } from "../../parts/icon.js";
import { Line } from "../../parts/line.js";
import { Trouble } from "../../parts/notice.js";
import { GRACE, Way } from "../../parts/way.js";
import { Reserved } from "../../parts/reserved.js";
import { Foreign } from "../../parts/text.js";
import { Age, TimeLeft } from "../../parts/times.js";
import { Awaited } from "./holder.js";
import { breakLock, useSending } from "./sending.js";

/** How long a reason may be. */
export const LONGEST_REASON = 200;

const FOREIGN =
  "A client that does not use the gateway has no fencing token. The gateway identifies this holder by a mark of the value in the store: if the value has changed by then, nothing is broken.";
const UNMARKED = "The gateway cannot identify this holder: the break ends the hold of any client that holds the lock when the request arrives.";
export const RESERVED = "No client renews a reservation, so the gateway notifies nobody: tell the person who reserved the lock.";
const ALL = "The break ends every lease of the lock, also leases that are granted before the request arrives.";
const UNTOLD = "A break does not stop the holder, and the gateway cannot notify the holder: the holder finds out when it next reads the store.";

/** By what a holder is told from the next: a lease by its number, a foreign client by what it has written. */
const markOf = (holder) => holder?.fencing_token ?? holder?.foreign_mark ?? null;

/** The dialog. The holder that it was opened for (`target`) is the only one that it breaks; without one it breaks all. */
export function Break({ name, lock, target, close, done }) {
  const meant = useSignal(target);
  const reason = useSignal("");
  // A request is told with a renewal, and no client renews a reservation.
  const grace = useSignal(target?.reservation ? 0 : GRACE);
  const { busy, trouble, send } = useSending(breakLock(name), { close, done });
  const field = useRef(null);
  const holder = meant.value;
  const all = holder === null;
  const others = lock.holder_count - 1;
  // Whoever came after all of those who shared the lock at first is not meant: perhaps it is for them that it is broken.
  const latest = useRef(Math.max(...lock.holders.map((one) => one.fencing_token ?? 0)));
  const isMeant = (one) => (all ? one.fencing_token !== null && one.fencing_token <= latest.current : markOf(one) === markOf(holder));
  // Of many some are not shown: those may well hold it still.
  const isThere = lock.holder_count > lock.holders.length || lock.holders.some(isMeant);
  // A client that uses no gateway cannot be asked.
  const within = holder?.foreign ? 0 : grace.value;
  const changed = lock.state === "free" || !isThere;
  // What lies there is nothing that a client writes into a lock.
  const unmarked = !all && markOf(holder) === null;
  useLayoutEffect(() => field.current?.focus(), [changed]);

  const submit = async (event) => {
    event.preventDefault();
    if (changed || busy.value) return;
    if (!reason.value.trim()) return field.current.focus();
    const body = { reason: reason.value.trim() };
    if (all) body.all = true;
    else if (holder.fencing_token !== null) body.fencing_token = holder.fencing_token;
    else if (holder.foreign_mark) body.foreign_mark = holder.foreign_mark;
    if (within > 0) body.grace_ms = within;
    const asked = all ? "All holders are asked to release the lock." : "The holder is asked to release the lock.";
    const broken = all ? "All leases are broken." : "The lease is broken.";
    await send(body, within > 0 ? asked : broken);
  };
  const back = () => {
    if (!isThere) meant.value = lock.holder;
    trouble.value = null;
  };
  return html`<${Dialog} title="Break the lock" close=${close}>
    <form onSubmit=${submit} class="break">
      <dl class="facts">
        <div class="wide"><dt>Lock</dt><dd class="mono"><${Foreign} value=${name} whole /></dd></div>
        ${all ? html`<div class="wide"><dt>Taken from</dt><dd class="who">${everybody(lock)}</dd></div>` : html`<${One} holder=${holder} />`}
        ${!all && others > 0
          ? html`<div class="wide"><dt>The others</dt><dd>${plural(others, "lease goes", "leases go")} on</dd></div>`
          : html`<div class="wide"><dt>Goes to</dt><dd><${Next} lock=${lock} /></dd></div>`}
      </dl>
      ${changed && html`<${Changed} lock=${lock} back=${back} close=${close} />`}
      ${!changed && all && html`<p class="remark">${ALL}</p>`}
      ${!changed && holder?.waiting && html`<p class="remark">This job waits for <${Awaited} lock=${holder.waits_for} at=${lock.sentAt} />. Breaking this lease does not help the job.</p>`}
      ${!changed && holder?.foreign && html`<p class="remark">${unmarked ? UNMARKED : FOREIGN}</p>`}
      ${!changed && html`<${Reason} reason=${reason} field=${field} />`}
      ${!changed && (holder?.foreign ? html`<p class="remark">${UNTOLD}</p>` : html`<${Way} grace=${grace} />`)}
      ${!changed && holder?.reservation && html`<p class="remark">${RESERVED}</p>`}
      <${Trouble} problem=${trouble.value} />
      ${trouble.value?.isUnknown &&
      html`<p class="remark">
        The break may have taken effect.${" "}
        ${all || holder.foreign ? "Look at the lock before you ask again." : "Asking again is safe: no other holder can be hit."}
      </p>`}
      ${!changed &&
      html`<footer>
        <button type="button" class="quiet" onClick=${close}>Cancel</button>
        <button type="submit" class="danger full" disabled=${busy.value}>${within > 0 ? (busy.value ? "Asking…" : "Request release") : busy.value ? "Breaking…" : "Break it now"}</button>
      </footer>`}
    </form>
  <//>`;
}

const everybody = (lock) => `${plural(lock.holder_count, "holder", "holders")}: all who share it`;

function One({ holder }) {
  return html`<div class="wide"><dt>Taken from</dt><dd class="who"><${Foreign} value=${ownerOf(holder)} none=${holder.foreign ? "a foreign client" : "owner not said"} whole /></dd></div>
    ${holder.reservation && html`<div class="wide"><dt>Reservation</dt><dd><${Reserved} reservation=${holder.reservation} /></dd></div>`}
    <div><dt>Held for</dt><dd><${Age} since=${holder.shown.acquiredAt} /></dd></div>
    <div><dt>Time left</dt><dd><${TimeLeft} lock=${holder.shown} /></dd></div>
    ${holder.slot !== null && html`<div><dt>Slot</dt><dd>${holder.slot}</dd></div>`}
    ${holder.foreign
      ? html`<div><dt>Mark</dt><dd class="mono" title=${holder.foreign_mark ?? ""}>${holder.foreign_mark?.slice(0, 12) ?? "–"}</dd></div>`
      : html`<div><dt>Fencing token</dt><dd class="mono">${holder.fencing_token}</dd></div>`}`;
}

/** The field for the reason. */
export function Reason({ reason, field }) {
  return html`<${Line}
    id="reason"
    label="Reason (recorded in the audit log and the event stream)"
    required
    maxlength=${LONGEST_REASON}
    placeholder="runner 7 is gone, asked in #ops"
    value=${reason}
    field=${field}
  />`;
}

/** Who gets the lock then. */
export function Next({ lock }) {
  const [first] = lock.waiters;
  if (!first) return html`<span class="none">nobody: the lock is free then</span>`;
  const others = lock.waiter_count - 1;
  return html`<${Foreign} value=${first.owner} none="the next, owner not said" />${others > 0 && html`${" "}<span class="none">and ${plural(others, "waits", "wait")} behind</span>`}`;
}

function Changed({ lock, back, close }) {
  if (lock.state === "free") {
    return html`<div class="sure" role="alert"><${Icon} name="done" /><p>The lock is free by now: there is nothing to break.</p></div>
      <footer><button type="button" onClick=${close}>Close</button></footer>`;
  }
  if (lock.holder_count !== 1) {
    const now = lock.holder_count > 1 ? "other callers hold the lock" : "the lock rests";
    return html`<div class="sure" role="alert"><${Icon} name="done" /><p>The leases to break have ended by now, and ${now}. Nothing was broken.</p></div>
      <footer><button type="button" onClick=${close}>Close</button></footer>`;
  }
  return html`<div class="sure" role="alert">
      <${Icon} name="warning" />
      <p>Another caller holds the lock by now: <${Foreign} value=${lock.holder.owner} none="owner not said" />. Nothing was broken.</p>
    </div>
    <footer>
      <button type="button" class="quiet" onClick=${close}>Leave it</button>
      <button type="button" onClick=${back}>Look at the new holder</button>
    </footer>`;
}
