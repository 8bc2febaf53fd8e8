// Time as the page shows it: one tick a second for everything, and the gateway's clock beside ours.

import { signal } from "../view.js";

/** Milliseconds since the page was opened; nothing is ever counted by the clock on the wall. */
export const now = () => performance.now();

/** Changes once a second: whatever shows time reads it. */
export const tick = signal(0);

/** By how much the gateway's clock is ahead of `now()`, as far as an answer has told. */
let ahead = null;

setInterval(() => {
  if (!document.hidden) tick.value += 1;
}, 1000);
document.addEventListener("visibilitychange", () => {
  if (!document.hidden) tick.value += 1;
});

/**
 * What a holder in an answer says of time, on our clock. The gateway's own time of the answer is
 * `expires_at - expires_in_ms`, so that ages come out right although the two clocks differ.
 */
export function times(holder, sentAt) {
  const left = holder.expires_in_ms;
  const expiresAt = left === null ? null : sentAt + left;
  if (left !== null && holder.expires_at) ahead = Date.parse(holder.expires_at) - left - sentAt;
  const acquiredAt = holder.acquired_at === null ? null : here(Date.parse(holder.acquired_at));
  const limit = holder.hold_expires_in_ms;
  const request = holder.release_requested;
  return {
    expiresAt,
    acquiredAt,
    holdEndsAt: limit === null ? null : sentAt + limit,
    releaseBy: request ? sentAt + request.within_ms : null,
  };
}

/** Takes in what an answer says of the time, to the second, until one says more. */
export function heard(date, sentAt) {
  const time = Date.parse(date);
  if (ahead === null && !Number.isNaN(time)) ahead = time - sentAt;
}

/** A time of the gateway on our clock; never in the future. */
export function here(gatewayTime) {
  return Math.min(now(), gatewayTime - (ahead ?? Date.now() - now()));
}

/** A time on our clock as the gateway's clock has it. */
export const there = (at) => new Date(at + (ahead ?? Date.now() - now()));

/** A time on our clock as the viewer's clock on the wall has it. */
export function wall(at) {
  return new Date(Date.now() - now() + at);
}
