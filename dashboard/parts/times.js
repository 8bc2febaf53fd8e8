// Times on the page: what is left of a lease, how long something lasts, and when something was.

import { html } from "../view.js";
import { now, tick, wall } from "../model/clock.js";
import { clock, duration, exact, NOTHING } from "../model/format.js";

/** What is left of a lease, or of a rest, as a bar that drains and as text. */
export function TimeLeft({ lock }) {
  tick.value;
  if (lock.ended) return html`<span class="left"><span class="bar over"></span><span>over</span></span>`;
  if (lock.expiresAt === null) {
    return html`<span class="left" title="The client that took the lock gave it no expiry">no expiry</span>`;
  }
  const left = Math.max(0, lock.expiresAt - now());
  const part = Math.min(1, left / Math.max(lock.ttl ?? left, left, 1));
  const level = part < 0.25 ? "bar low" : "bar";
  const end = exact(wall(lock.expiresAt));
  const title = lock.rests ? `Rests until ${end}` : lock.reservation ? `Reserved until ${end}` : `Ends ${end} unless it is renewed`;
  return html`<span class="left" title=${title}>
    <span class=${level} aria-hidden="true"><i style=${{ transform: `scaleX(${part.toFixed(4)})` }} /></span>
    <span>${duration(left)}</span>
  </span>`;
}

/** For how long something has lasted that began at `since` on our clock. */
export function Age({ since }) {
  tick.value;
  if (since === null || since === undefined) return NOTHING;
  const began = wall(since);
  return html`<time datetime=${began.toISOString()} title=${`Since ${exact(began)}`}
    >${duration(now() - since)}</time
  >`;
}

/** When something was, by `at` on our clock or a text of the gateway; the day too, if it is another one than `day`. */
export function Moment({ at, day }) {
  const date = typeof at === "string" ? new Date(at) : wall(at);
  if (Number.isNaN(date.getTime())) return NOTHING;
  return html`<time datetime=${date.toISOString()} title=${exact(date)}>${clock(date, day)}</time>`;
}

/** From when to when something was, by texts of the gateway; what is not known is null. */
export function Span({ from, to }) {
  if (!from && !to) return NOTHING;
  if (!from) return html`until <${Moment} at=${to} />`;
  if (!to) return html`since <${Moment} at=${from} />`;
  return html`<${Moment} at=${from} /> – <${Moment} at=${to} day=${new Date(from)} />`;
}
