// How many have waited for each lock over the last minutes.

import { signal } from "../view.js";
import { now } from "./clock.js";
import { locks } from "./locks.js";

/** A look every few seconds, and so many of them: two minutes. */
const STEP = 5_000;
export const KEPT = 25;
export const SPAN = (KEPT - 1) * STEP;

/** By name, oldest first: locks for which nobody has waited have no entry. */
const counts = new Map();
let lookedAt = -Infinity;

/** Changes with each look: whoever shows them reads it. */
export const historyVersion = signal(0);

/** Looks if it is time to. Called once a second while the page is in sight. */
export function noteWaiters() {
  const pause = now() - lookedAt;
  if (pause < STEP) return;
  // Of the time in which nobody has looked nothing is known.
  if (pause > 3 * STEP) counts.clear();
  lookedAt = now();
  for (const [name, past] of counts) {
    past.push(waiting(locks.get(name)));
    if (past.length > KEPT) past.shift();
    if (past.every((count) => count === 0)) counts.delete(name);
  }
  for (const lock of locks.values()) {
    if (waiting(lock) > 0 && !counts.has(lock.name)) counts.set(lock.name, [0, waiting(lock)]);
  }
  historyVersion.value += 1;
}

/** How many have waited for a lock, oldest first; undefined if nobody has. */
export const waitersOf = (name) => counts.get(name);

/** Forgets those of locks that may not be seen any more. */
export function keepHistory(isSeen) {
  for (const name of counts.keys()) if (!isSeen(name)) counts.delete(name);
}

/** Forgets everything. */
export function forgetHistory() {
  counts.clear();
  lookedAt = -Infinity;
}

function waiting(lock) {
  return !lock || lock.ended ? 0 : (lock.waiters ?? 0);
}
