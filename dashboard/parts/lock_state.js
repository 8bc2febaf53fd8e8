// The state of a lock, as a shape and a word: neither needs the colour.

import { html } from "../view.js";
import { now, tick } from "../model/clock.js";
import { isCatchingUp } from "../model/locks.js";
import { isStale } from "../model/store.js";

const SHAPES = {
  held: html`<circle cx="6" cy="6" r="4.5" class="full" />`,
  ending: html`<circle cx="6" cy="6" r="4.5" /><path d="M6 1.5a4.5 4.5 0 0 1 0 9z" class="full" />`,
  foreign: html`<path d="M6 .8L11.2 6 6 11.2.8 6z" class="full" />`,
  asked: html`<circle cx="6" cy="6" r="4.5" /><path d="M6 3.6v2.8M6 8.2v.3" />`,
  resting: html`<circle cx="6" cy="6" r="4.5" /><path d="M4.7 4v4M7.3 4v4" />`,
  reserved: html`<path d="M1.4 2.8h9.2v7.8H1.4zM1.4 5.6h9.2M4 1v3M8 1v3" />`,
  waiting: html`<path d="M2.5 1.5h7L6 6zM2.5 10.5h7L6 6z" /><path d="M2.5 10.5h7L6 6z" class="full" />`,
  free: html`<circle cx="6" cy="6" r="4.5" />`,
  over: html`<path d="M2.5 2.5l7 7M9.5 2.5l-7 7" />`,
};

const SAYS = {
  held: "A client holds the lock",
  ending: "Less than a quarter of the lease is left",
  foreign: "Taken in the store itself by a client that does not use the gateway",
  asked: "The holder was asked to release the lock",
  resting: "Released before its minimum hold was over: no client gets the lock until then",
  reserved: "Reserved until a time",
  waiting: "Its job waits for another lock, and only keeps this one",
  free: "No client holds the lock",
  overdue: "The lease's time is over; its end is not reported yet",
  unknown: "The lease may have been renewed: events may be missing, or the store is silent",
  released: "The holder released the lock",
  expired: "The lease expired",
  broken: "An operator broke the lock",
};

/** What is to be said of a lock now: one of the words of `SAYS`. */
export function stateOf(lock) {
  if (lock.ended) return lock.ended.kind;
  const left = lock.expiresAt === null ? Infinity : lock.expiresAt - now();
  if (lock.rests) return "resting";
  // While the stream is lost or the store is silent, or was until now, a renewal may not have been heard.
  if (left < -500) return isStale() || isCatchingUp() ? "unknown" : "overdue";
  if (lock.foreign) return "foreign";
  if (lock.releaseBy !== null) return "asked";
  if (lock.reservation) return "reserved";
  if (lock.waiting) return "waiting";
  return lock.ttl && left < lock.ttl / 4 ? "ending" : "held";
}

/** The state of a lock that is held, or was a moment ago. */
export function LockState({ lock }) {
  tick.value;
  return html`<${StateMark} state=${stateOf(lock)} />`;
}

/** A state by its word. */
export function StateMark({ state }) {
  const shape = SHAPES[state] ?? SHAPES.over;
  return html`<span class="state ${state}" title=${SAYS[state]}>
    <svg viewBox="0 0 12 12" aria-hidden="true">${shape}</svg>${state}
  </span>`;
}
