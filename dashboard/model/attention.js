// What the overview asks for beside the list: how long the waiters of contended locks have waited, and how long locks are
// usually held.

import { signal } from "../view.js";
import { ask, lockPath, Problem } from "./api.js";
import { now } from "./clock.js";
import { figures } from "./figures.js";
import { locks } from "./locks.js";
import { soon } from "./soon.js";
import { usualOf } from "./usual.js";

/** How often it is decided what to ask for, and how many requests are under way at once. */
const DECISION = 2_000;
const ABREAST = 2;
/** So many queues are inspected at first, then so many per decision, and none again sooner than after this time. */
const QUEUES = { first: 8, then: 3, age: 8_000 };
/** So many of the longest waits that a gateway tells of are inspected before the other locks take turns. */
const TOLD = 10;
/** The same of histories; so many are kept. */
const HISTORIES = { many: 50, first: 4, then: 1, age: 600_000, kept: 1_000 };
/** What is held for less is not compared with what is usual. */
const HELD = 60_000;
/** A lock with waiters is looked at as if it were held so many times longer. */
const URGENT = 10;

/** By name: `{at, fence, longest}`; `longest` is `{since, owner}` of the waiter that has waited longest, or null. */
const queues = new Map();
/** By name: `{at, usual}`. */
const usuals = new Map();
/** Changes after either has. */
export const attentionVersion = signal(0);
const changed = soon(() => (attentionVersion.value += 1), 200);

let era = 0;
let asking = false;
let decidedAt = -Infinity;

/** Whether the queue was looked at since the lock has passed to its holder, and who has waited longest in it. */
export function queueOf({ name, fence }) {
  const known = queues.get(name);
  return known?.fence === fence && known.longest !== undefined ? known : null;
}

export const usualHold = (name) => usuals.get(name)?.usual ?? null;

/** Whether the time for which the lock is held says something of a client that works. */
export const isWork = (lock) =>
  !lock.ended && !lock.rests && !lock.reservation && !lock.foreign && !lock.waiting && lock.acquiredAt !== null;

/** The locks for which somebody waits, most waiters first. */
export function contended() {
  const found = [...locks.values()].filter((lock) => lock.waiters > 0 && !lock.ended);
  return found.sort((one, other) => other.waiters - one.waiters || (one.name < other.name ? -1 : 1));
}

/** The holds that are long enough to be compared. */
export const longHolds = () => [...locks.values()].filter((lock) => isWork(lock) && now() - lock.acquiredAt >= HELD);

/** Asks for what is not known yet, or has grown old. Called once a second where it is shown. */
export async function lookAtAttention() {
  if (asking || document.hidden || now() - decidedAt < DECISION) return;
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

/** The longest waits that the gateway knows of come first, then those that were looked at longest ago, or never. */
function dueQueues() {
  const { longest_waits: waits, contended: crowded = [] } = figures.peek() ?? {};
  const told = waits ?? crowded.toSorted((one, other) => other.longest_wait_ms - one.longest_wait_ms).slice(0, QUEUES.then);
  const all = contended();
  const first = told.slice(0, TOLD).map(({ name }) => locks.get(name)).filter((lock) => lock?.waiters > 0 && !lock.ended);
  const turns = all.toSorted((one, other) => (queues.get(one.name)?.at ?? -1) - (queues.get(other.name)?.at ?? -1));
  const names = new Set(all.map(({ name }) => name));
  for (const name of queues.keys()) if (!names.has(name)) queues.delete(name);
  const wanted = [...new Set([...first, ...turns])];
  const due = wanted.filter(({ name, fence }) => !(queues.get(name)?.fence === fence && now() - queues.get(name).at < QUEUES.age));
  return due.slice(0, queues.size < QUEUES.first ? QUEUES.first : QUEUES.then).map(({ name, fence }) =>
    read(queues, name, undefined, { fence }, ({ waiters }, sentAt) => {
      const [longest] = waiters.toSorted((one, other) => other.waited_ms - one.waited_ms);
      return { longest: longest ? { since: sentAt - longest.waited_ms, owner: longest.owner } : null };
    }));
}

/**
 * A lock whose lease was renewed again and again is looked at before one that was granted for a long time. Names stay known
 * when their lock has ended: it is held again soon.
 */
function dueHistories() {
  const urgency = ({ acquiredAt, ttl, waiters }) => ((now() - acquiredAt) / Math.max(1, ttl ?? 1)) * (waiters > 0 ? URGENT : 1);
  const due = longHolds().filter(({ name }) => !(now() - usuals.get(name)?.at < HISTORIES.age));
  const most = usuals.size < HISTORIES.many ? HISTORIES.first : HISTORIES.then;
  return due.sort((one, other) => urgency(other) - urgency(one)).slice(0, most).map(({ name }) =>
    read(usuals, name, "history", {}, ({ enabled, entries }) => ({ usual: enabled ? usualOf(entries) : null })));
}

/** A request whose answer is kept in `known`; after a failure nothing is known, and it is not asked again before its time. */
const read = (known, name, verb, more, shape) => async (mine) => {
  const at = now();
  try {
    const { body, sentAt } = await ask(lockPath(name, verb));
    if (mine === era) keep(known, name, { at, ...more, ...shape(body, sentAt) });
  } catch (problem) {
    if (!(problem instanceof Problem)) throw problem;
    if (mine === era) keep(known, name, { at, ...more });
  }
  changed();
};

function keep(known, name, what) {
  known.delete(name);
  known.set(name, what);
  if (known === usuals && known.size > HISTORIES.kept) known.delete(known.keys().next().value);
}

/** Forgets what is known of locks that may not be seen any more, or of all. */
export function keepAttention(isSeen = () => false) {
  era += 1;
  for (const known of [queues, usuals]) for (const name of known.keys()) if (!isSeen(name)) known.delete(name);
  changed();
}
