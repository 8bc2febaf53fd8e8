// The held locks as the page knows them: listed once, kept up to date by events, listed again when
// events may be missing.

import { signal } from "../view.js";
import { ask, Problem } from "./api.js";
import { here, now, times } from "./clock.js";
import { ENDS } from "./feed.js";
import { lengthOf } from "./reservation.js";
import { asRest, restsOf } from "./rests.js";
import { visiblePrefixes } from "./session.js";
import { asOne, sharerOf, sharersOf } from "./sharers.js";
import { soon } from "./soon.js";

/** How many locks are loaded before the viewer is asked to narrow the search. */
export const MOST_LOADED = 10_000;
/** The first page is small, so that there is something to see at once. */
const FIRST_PAGE = 100;
const PAGE = 1_000;
/** How long a lock whose lease has ended stays in sight, so that rows do not vanish under a finger. */
const FAREWELL = 3_000;
/** An end that nobody told of: so long after the time of a lease is over its row goes. */
const OVERDUE = 8_000;
/** Events come as well as they can, and none tells that a waiter has left: so everything is looked at
 * anew now and then, more often if it is little. */
const REFRESH = { failed: 5_000, few: 15_000, many: 60_000 };
const FEW = 2_000;

/** Between loads that gaps and reconnects ask for. */
const CATCH_UP = { least: 1_000, most: 15_000 };

/**
 * By name: `{name, fence, owner, metadata, group, reservation, ttl, expiresAt, acquiredAt, releaseBy, foreign, waiters, ended}`. Events
 * tell no metadata and no group: both are null until the lock is listed. A lock that is shared has what `asOne` says, too:
 * `shared`, `leases` and `count`, which may be more than are known. One that nobody holds and that rests has `rests`.
 */
export const locks = new Map();
/** Changes after the locks have: whoever shows them reads it. */
export const locksVersion = signal(0);
/**
 * `{state}`: `idle`, `loading`, `ready` or `failed` with a `problem`; `partial` while some are still to
 * come, `more` if not all of them are loaded.
 */
export const listing = signal({ state: "idle", more: false, partial: false });

export const changed = soon(() => (locksVersion.value += 1), 200);
/** The highest fencing token by name that is known to have ended: word of it may come late. */
const endedFences = new Map();
/** Of locks that are shared each lease that is known to have ended: others with smaller numbers may go on. */
const endedSharers = new Set();
let prefix = "";
let walk = null;
/** A walk through the list is under way. */
let walking = false;
let begun = 0;
let listedAt = -Infinity;

/** Loads every visible lock whose name begins so. What is loaded stays in sight until it is known anew. */
export async function load(begin = prefix) {
  walk?.abort();
  const stop = (walk = new AbortController());
  // What is not listened to any more would only grow old.
  for (const name of locks.keys()) if (!name.startsWith(begin)) locks.delete(name);
  // Where nothing was found a moment ago, that stays in sight too.
  const fresh = locks.size === 0 && !(listing.value.state === "ready" && begin === prefix);
  prefix = begin;
  const round = ++begun;
  listing.value = { ...listing.value, state: fresh ? "loading" : listing.value.state };
  walking = true;
  try {
    const more = await walkThrough(begin, round, stop.signal);
    for (const [name, lock] of locks) {
      if (lock.round < round && !lock.ended && !more) locks.delete(name);
    }
    listedAt = now();
    listing.value = { state: "ready", more, partial: false };
  } catch (error) {
    if (stop.signal.aborted) return;
    if (!(error instanceof Problem)) throw error;
    listedAt = now();
    const state = fresh && locks.size === 0 ? "failed" : "ready";
    listing.value = { ...listing.value, state, partial: false, problem: error };
  } finally {
    if (walk === stop) walking = false;
  }
  changed();
}

let catching = null;
let caughtUpAt = -Infinity;
let pause = 0;

/**
 * Loads everything anew after a gap or a reconnect. Where these come again and again it is one walk at a time, with longer
 * and longer pauses between them: each is read to its end, or there would never be one that is whole.
 */
export function catchUp() {
  if (catching !== null) return;
  const calm = now() - caughtUpAt > 4 * CATCH_UP.most;
  pause = calm ? 0 : Math.min(CATCH_UP.most, Math.max(CATCH_UP.least, pause * 2));
  const due = () => {
    if (listing.value.state === "idle") return void (catching = null);
    if (walking) return void (catching = setTimeout(due, CATCH_UP.least));
    catching = null;
    caughtUpAt = now();
    load();
  };
  catching = setTimeout(due, pause);
}

async function walkThrough(begin, round, signal) {
  let loaded = 0;
  for (const asked of visiblePrefixes(begin)) {
    let cursor = null;
    do {
      const limit = loaded === 0 ? FIRST_PAGE : PAGE;
      const query = new URLSearchParams({ limit });
      if (asked && asked !== "*") query.set("prefix", asked);
      if (cursor) query.set("cursor", cursor);
      const { body, sentAt } = await ask(`locks?${query}`, { signal });
      for (const lock of body.locks) take(lock, sentAt, round);
      loaded += body.locks.length;
      cursor = body.next_cursor;
      changed();
      const begun = listing.value.state === "loading" && loaded > 0;
      if (begun) listing.value = { ...listing.value, state: "ready", partial: true };
      if (loaded >= MOST_LOADED && cursor) return true;
    } while (cursor);
  }
  return false;
}

/** Takes in a lock as a list or an inspection shows it. */
export function take({ name, holders, holder_count: count, waiter_count: waiters, resting = [] }, sentAt, round = begun) {
  const known = locks.get(name);
  const [holder = null] = holders;
  if (holder?.mode === "shared") return takeSharers({ name, holders, count, waiters }, known, sentAt, round);
  if (holder === null && resting.length > 0) {
    const rest = asRest(restsOf(resting, sentAt, known?.rests));
    if (known && !known.ended && !known.rests && known.fence > rest.fence) return;
    locks.set(name, { name, waiters, ended: null, round, ...rest });
    return;
  }
  if (holder === null) {
    // How it ended, an event may tell; that it has ended is certain.
    if (known) end(known, "free", known.fence);
    return;
  }
  const fence = holder.fencing_token;
  if (fence !== null && isOld(name, fence)) return;
  if (known && !known.foreign && fence !== null && known.fence > fence) return;
  locks.set(name, {
    name,
    fence,
    owner: holder.owner,
    metadata: holder.metadata,
    group: holder.group,
    reservation: holder.reservation ?? null,
    waiting: holder.waiting ?? false,
    ttl: lengthOf(holder),
    foreign: holder.foreign,
    waiters,
    ended: null,
    round,
    ...times(holder, sentAt),
  });
}

function takeSharers({ name, holders, count, waiters }, known, sentAt, round) {
  const isBeside = known?.shared && !known.ended;
  const leases = sharersOf(holders, sentAt);
  for (const fence of leases.keys()) {
    if (!hasEnded(name, fence)) continue;
    leases.delete(fence);
    count -= 1;
  }
  // Who came after the gateway was asked is not in its answer.
  for (const [fence, lease] of isBeside ? known.leases : []) {
    if (lease.heardAt <= sentAt || leases.has(fence)) continue;
    leases.set(fence, lease);
    count += 1;
  }
  if (leases.size === 0) return;
  if (known && !known.ended && !known.shared && !known.foreign && known.fence > Math.max(...leases.keys())) return;
  locks.set(name, { name, waiters, ended: null, round, ...asOne(leases, count) });
}

/** Takes in an event. */
export function apply(event) {
  const { name, fencing_token: fence, kind } = event;
  if (!name || !name.startsWith(prefix)) return;
  const known = locks.get(name);
  if (kind === "acquired") (event.mode === "shared" ? joined : acquired)(event, known);
  else if (kind === "queued") {
    if (known) known.waiters = Math.max(known.waiters ?? 0, event.position ?? 1);
  } else if (kind === "renewed") {
    if (known?.shared) renewedSharer(event, known);
    else if (known && (fence === null || known.fence === fence)) {
      known.expiresAt = now() + event.expires_in_ms;
      known.waiting = false;
      known.ttl = Math.max(event.expires_in_ms, known.fence === fence ? 0 : known.ttl);
      known.round = begun;
    }
  } else if (kind === "release-requested") {
    askedToRelease(event, known);
  } else if (ENDS.includes(kind)) {
    // A rest begins with a release, so only a break ends a rest early.
    if (known?.rests) kind === "broken" && woken(event, known);
    else if (event.mode === "shared" || known?.shared) left(event, known);
    else if (known) end(known, kind, fence);
    else if (fence) remember(name, fence);
  }
  changed();
}

function acquired(event, known) {
  const { name, fencing_token: fence, owner, expires_in_ms: left } = event;
  if (fence === null || isOld(name, fence) || (known && known.fence >= fence && !known.ended)) return;
  if (!known && locks.size >= MOST_LOADED && listing.value.more) return;
  // One who has waited is served: there is one fewer in the queue.
  const waiters = event.waited_ms > 0 && known?.waiters ? known.waiters - 1 : (known?.waiters ?? 0);
  locks.set(name, {
    name,
    fence,
    owner,
    metadata: null,
    group: null,
    reservation: event.reservation ?? null,
    waiting: event.waiting ?? false,
    ttl: left,
    foreign: false,
    waiters,
    ended: null,
    round: begun,
    // What is left is counted from when it was heard: clocks of gateways may differ, and ages may be wrong.
    expiresAt: now() + left,
    acquiredAt: here(Date.parse(event.at)),
    holdEndsAt: null,
    releaseBy: null,
  });
}

/** Somebody shares the lock, beside those who do. */
function joined(event, known) {
  const { name, fencing_token: fence, waited_ms: waited } = event;
  const isBeside = known?.shared && !known.ended;
  if (fence === null || hasEnded(name, fence) || (isBeside && known.leases.has(fence))) return;
  if (known && !known.ended && !known.shared && known.fence > fence) return;
  if (!known && locks.size >= MOST_LOADED && listing.value.more) return;
  const waiters = waited > 0 && known?.waiters ? known.waiters - 1 : (known?.waiters ?? 0);
  const leases = new Map(isBeside ? known.leases : []).set(fence, sharerOf(event));
  locks.set(name, { name, waiters, ended: null, round: begun, ...asOne(leases, (isBeside ? known.count : 0) + 1) });
}

function renewedSharer({ fencing_token: fence, expires_in_ms: left }, known) {
  const lease = known.leases.get(fence);
  if (!lease) return;
  const ttl = Math.max(left, lease.ttl);
  known.leases.set(fence, { ...lease, ttl, waiting: false, heardAt: now(), expiresAt: now() + left });
  Object.assign(known, asOne(known.leases, known.count), { round: begun });
}

/** A holder was asked to release the lock. Of several requests the one that ends first counts. */
function askedToRelease({ fencing_token: fence, expires_in_ms: left }, known) {
  const lease = known?.shared ? known.leases.get(fence) : known?.fence === fence && known;
  if (!lease) return;
  lease.releaseBy = Math.min(lease.releaseBy ?? Infinity, now() + left);
  if (known.shared) Object.assign(known, asOne(known.leases, known.count));
}

/** One of those who share the lock has left it. Which one it was, an event may not know: the next list does. */
function left({ name, fencing_token: fence, kind }, known) {
  if (fence === null || hasEnded(name, fence)) return;
  endedSharers.add(sharer(name, fence));
  cut(endedSharers);
  if (!known?.shared || known.ended) return;
  if (known.leases.size === 1 && known.leases.has(fence) && known.count <= 1) return end(known, kind, known.fence);
  // One that was never seen is one of those that the answer did not show.
  if (!known.leases.delete(fence) && known.count <= known.leases.size) return;
  if (known.leases.size === 0) locks.delete(name);
  else Object.assign(known, asOne(known.leases, Math.max(known.count - 1, known.leases.size)));
}

/** Something that rested was broken: whoever waits gets it. */
function woken({ fencing_token: fence, kind }, known) {
  const rests = known.rests.filter((rest) => rest.fence !== fence);
  if (rests.length === 0) end(known, kind, fence);
  else Object.assign(known, asRest(rests));
}

const sharer = (name, fence) => `${name} ${fence}`;

function hasEnded(name, fence) {
  return isOld(name, fence) || endedSharers.has(sharer(name, fence));
}

function end(lock, kind, fence) {
  if (lock.ended) return;
  // An end whose lease is not known may be that of the lease before this one.
  if (fence === null ? !lock.foreign : lock.fence > fence) return;
  if (fence) remember(lock.name, fence);
  lock.ended = { kind, at: now() };
  setTimeout(() => {
    if (locks.get(lock.name) === lock) {
      locks.delete(lock.name);
      changed();
    }
  }, FAREWELL);
}

function remember(name, fence) {
  endedFences.set(name, Math.max(fence, endedFences.get(name) ?? 0));
  cut(endedFences);
}

/** Forgets the oldest of too many. */
function cut(ends) {
  if (ends.size > MOST_LOADED) ends.delete(ends.keys().next().value);
}

function isOld(name, fence) {
  return (endedFences.get(name) ?? 0) >= fence;
}

/**
 * The locks that one request of this owner has acquired, in the order of their names, as far as they are known: each
 * `{name, shared, slot}`, as it holds the lock.
 */
export function groupOf({ first, count }, owner) {
  const isPart = (lease) => lease.group?.first === first && lease.group.count === count && lease.owner === owner;
  const found = new Map(first === null ? [] : [[first, { name: first }]]);
  for (const lock of first === null ? [] : locks.values()) {
    const { name, ended, shared = false } = lock;
    const part = !ended && (shared ? [...lock.leases.values()] : [lock]).find(isPart);
    if (part) found.set(name, { name, shared, slot: part.slot ?? null });
  }
  return [...found.values()].sort((one, other) => (one.name < other.name ? -1 : 1));
}

/** Whether the locks whose name begins so are among those that are loaded. */
export function isLoaded(begin) {
  return begin.startsWith(prefix) && (begin === prefix || !listing.value.more);
}

/** Forgets those that may not be seen any more. */
export function keepLocks(isSeen) {
  for (const name of locks.keys()) if (!isSeen(name)) locks.delete(name);
  changed();
}

/** Forgets every lock. */
export function forgetLocks() {
  walk?.abort();
  clearTimeout(catching);
  catching = null;
  locks.clear();
  endedFences.clear();
  endedSharers.clear();
  prefix = "";
  listing.value = { state: "idle", more: false, partial: false };
  changed();
}

/** Whether events may be missing of what was not listed again yet. */
export const isCatchingUp = () => catching !== null || walking;

/** Whether nobody has asked for any lock. */
export const isIdle = () => listing.peek().state === "idle";

/**
 * Drops what is overdue, and looks at everything anew when that is due. Called once a second. `live`: events are
 * heard; `answers`: the gateway can be asked.
 */
export function tidy({ live, answers }) {
  const late = now() - OVERDUE;
  for (const lock of locks.values()) {
    // No event tells that a rest is over.
    if (lock.rests && !lock.ended && lock.expiresAt < now()) {
      end(lock, "free", lock.fence);
      changed();
    }
    if (live && !lock.ended && lock.expiresAt !== null && lock.expiresAt < late) {
      locks.delete(lock.name);
      changed();
    }
  }
  const { state, problem } = listing.value;
  const pause = problem ? REFRESH.failed : locks.size > FEW ? REFRESH.many : REFRESH.few;
  // A walk that is under way is not begun anew: what has come so far counts as ready.
  if (answers && !walking && now() - listedAt > pause && (state === "ready" || state === "failed")) {
    listedAt = now();
    load();
  }
}
