// Requests of the overview, beside the list of locks: for the queues of locks with waiters, and for the histories of locks
// that are held for long.

import { signal } from "../view.js";
import { ask, lockPath, Problem } from "./api.js";
import { now } from "./clock.js";
import { figures } from "./figures.js";
import { locks } from "./locks.js";
import { soon } from "./soon.js";
import { usualOf } from "./usual.js";

/** So many locks with waiters are inspected, so often. */
const QUEUES = 8;
const QUEUES_AGE = 8_000;
/** The histories of so many locks are read, those that are held longest, and read again so late. */
const HOLDS = 50;
const HOLDS_AGE = 600_000;
/** How often it is decided what to ask for, and how many requests are under way at once. */
const PAUSE = 2_000;
const ABREAST = 2;

/** By name: `{at, since, owner}` of the waiter that has waited longest, or null if nobody waits. */
const queues = new Map();
/** By name: `{at, usual}`. */
const usuals = new Map();
/** Changes after either has. */
export const attentionVersion = signal(0);
const changed = soon(() => (attentionVersion.value += 1), 200);

let era = 0;
let asking = false;
let decidedAt = -Infinity;

export const queueOf = (name) => queues.get(name)?.longest ?? null;
export const usualHold = (name) => usuals.get(name)?.usual ?? null;

/** Whether the time for which the lock is held says something of a client that works. */
export const isWork = (lock) => !lock.ended && !lock.rests && !lock.reservation && !lock.foreign && lock.acquiredAt !== null;

/** The locks for which somebody waits, most waiters first. */
export function contended() {
  const found = [...locks.values()].filter((lock) => lock.waiters > 0 && !lock.ended);
  return found.sort((one, other) => other.waiters - one.waiters || (one.name < other.name ? -1 : 1));
}

/** Asks for what is not known yet, or has grown old. Called once a second where it is shown. */
export async function lookAtAttention() {
  if (asking || document.hidden || now() - decidedAt < PAUSE) return;
  decidedAt = now();
  asking = true;
  const mine = era;
  const due = [...dueQueues(), ...dueHistories()];
  const work = async () => {
    for (let next = due.shift(); next && mine === era && !document.hidden; next = due.shift()) await next(mine);
  };
  try {
    await Promise.all(Array.from({ length: ABREAST }, work));
  } finally {
    asking = false;
  }
}

function dueQueues() {
  const told = (figures.peek()?.contended ?? []).toSorted((one, other) => other.longest_wait_ms - one.longest_wait_ms);
  const names = new Set([...told.map(({ name }) => name), ...contended().map(({ name }) => name)].slice(0, 2 * QUEUES));
  const wanted = [...names].filter((name) => locks.has(name)).slice(0, QUEUES);
  for (const name of queues.keys()) if (!wanted.includes(name)) queues.delete(name);
  const due = wanted.filter((name) => !(now() - queues.get(name)?.at < QUEUES_AGE));
  return due.map((name) => read(queues, name, undefined, ({ waiters }, sentAt) => {
    const [longest] = waiters.toSorted((one, other) => other.waited_ms - one.waited_ms);
    return { longest: longest ? { since: sentAt - longest.waited_ms, owner: longest.owner } : null };
  }));
}

function dueHistories() {
  const held = [...locks.values()].filter(isWork).sort((one, other) => one.acquiredAt - other.acquiredAt).slice(0, HOLDS);
  const names = new Set(held.map(({ name }) => name));
  for (const name of usuals.keys()) if (!names.has(name)) usuals.delete(name);
  const due = held.filter(({ name }) => !(now() - usuals.get(name)?.at < HOLDS_AGE));
  return due.map(({ name }) => read(usuals, name, "history", ({ entries }) => ({ usual: usualOf(entries) })));
}

/** A request whose answer is kept in `known`; one that failed is not asked again before its time. */
const read = (known, name, verb, shape) => async (mine) => {
  const at = now();
  known.set(name, { ...known.get(name), at });
  try {
    const { body, sentAt } = await ask(lockPath(name, verb));
    if (mine === era) known.set(name, { at, ...shape(body, sentAt) });
    changed();
  } catch (problem) {
    if (!(problem instanceof Problem)) throw problem;
  }
};

/** Forgets what is known of locks that may not be seen any more, or of all. */
export function keepAttention(isSeen = () => false) {
  era += 1;
  for (const known of [queues, usuals]) for (const name of known.keys()) if (!isSeen(name)) known.delete(name);
  changed();
}
