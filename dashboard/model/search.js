// What is searched for: at once in what the page has loaded, and at the gateway in the rest.

import { signal } from "../view.js";
import { ask, Problem } from "./api.js";
import { now } from "./clock.js";
import { changed, listing, locks, take } from "./locks.js";
import { visiblePrefixes } from "./session.js";

/** How many locks that are not loaded are found before the viewer is asked to narrow the search. */
export const MOST_FOUND = 1_000;
const PAGE = 1_000;
/** How soon the gateway is asked again: events tell no metadata, and of what is not loaded none is heard. */
const AGAIN = { unknown: 3_000, many: 15_000, waiters: 15_000, unloaded: 60_000 };
const FEW = 2_000;

/** As the gateway does it: letter by letter. A capital sigma is the only letter that depends on those around it. */
export const lower = (text) => text.replaceAll("Σ", "σ").toLowerCase();

const IDLE = { key: null, state: "idle", more: false };
/**
 * What the gateway was asked for last, by `key`: `{state}` is `idle`, `done` or `failed` with a `problem`; `more` if it
 * has more than are shown.
 */
export const seeking = signal(IDLE);

let wanted = { prefix: "", search: "" };
let stop = null;
let asking = false;
let askedAt = -Infinity;
let pause = 0;
/** What is shown for the sake of this search alone. */
const sought = new Set();
/** By name what the gateway has found beside the name, as it says: of a holder, or of a waiter that no list shows. */
const matches = new Map();
/** A search at the gateway finds the first so many waiters of a lock. */
export const WAITERS = 100;

/** What the gateway has found in the lock for the sake of this search, if it has said so. */
export const matchOf = (name) => matches.get(name);

/** Whether a lock has this text, in lower case, in its name, or an owner of it or a value of the metadata, or was found by it. */
export function fits(lock, part) {
  return fitsHere(lock, part) || (matches.has(lock.name) && part === lower(wanted.search));
}

function fitsHere({ name, owner, metadata, leases }, part) {
  const has = (text) => text !== null && lower(text).includes(part);
  const ofLease = (lease) => has(lease.owner) || matched(lease.metadata, part) !== undefined;
  return part === "" || has(name) || ofLease({ owner, metadata }) || [...(leases?.values() ?? [])].some(ofLease);
}

/** The entry of the metadata whose value has this text, as `[name, value]`. */
export function matched(metadata, part) {
  return Object.entries(metadata ?? {}).find(([, value]) => lower(value).includes(part));
}

const keyOf = ({ prefix, search }) => JSON.stringify([prefix, lower(search)]);

/** Says what is searched for from now on; nothing with an empty text. */
export function want(prefix, search) {
  if (keyOf({ prefix, search }) === keyOf(wanted)) return;
  wanted = { prefix, search };
  matches.clear();
  for (const name of sought) {
    if (search && fits(locks.get(name) ?? { name, owner: null }, lower(search))) continue;
    locks.delete(name);
    sought.delete(name);
    changed();
  }
  cancelSearch();
  if (isNeeded()) seek();
}

/** Whether the gateway may know of locks with this text that are not shown, and has not been asked for it. */
export function isIncomplete(prefix, search) {
  return Boolean(search) && isNeeded(search) && seeking.value.key !== keyOf({ prefix, search });
}

/** Asks again if that is due. Called once a second. */
export function seekAgain({ answers }) {
  if (!answers || asking || !isNeeded()) return;
  const least = locks.size > FEW ? AGAIN.many : AGAIN.unknown;
  const due = isUnknown() ? Math.max(least, pause) : hasWaiters() && locks.size <= FEW ? AGAIN.waiters : AGAIN.unloaded;
  const since = now() - askedAt;
  if (since <= due) return;
  // On a busy store some lock is always unknown, and each walk is charged to the key.
  pause = since > AGAIN.unloaded ? 0 : Math.min(2 * due, AGAIN.unloaded);
  seek();
}

/** Stops asking: who is signed in may be somebody else by now. */
export function cancelSearch() {
  stop?.abort();
  stop = null;
  asking = false;
  askedAt = -Infinity;
  pause = 0;
  matches.clear();
  seeking.value = IDLE;
}

function isNeeded(search = wanted.search) {
  return search !== "" && (listing.peek().more || listing.peek().partial || isUnknown() || hasWaiters());
}

/** Only the gateway knows who waits. */
function hasWaiters() {
  for (const lock of locks.values()) if (lock.waiters > 0 && !lock.ended) return true;
  return false;
}

function isUnknown() {
  for (const lock of locks.values()) if (lock.metadata === null && !lock.ended) return true;
  return false;
}

async function seek() {
  const key = keyOf(wanted);
  const mine = (stop = new AbortController());
  asking = true;
  try {
    const found = new Map();
    const more = await walk(wanted, mine.signal, found);
    matches.clear();
    for (const [name, match] of found) matches.set(name, match);
    changed();
    seeking.value = { key, state: "done", more };
  } catch (problem) {
    if (mine.signal.aborted) return;
    if (!(problem instanceof Problem)) throw problem;
    seeking.value = { key, state: "failed", more: false, problem };
  } finally {
    if (stop === mine) {
      asking = false;
      askedAt = now();
    }
  }
}

/** Takes in all that is found; answers whether there is more. */
async function walk({ prefix, search }, signal, matched) {
  let found = 0;
  for (const asked of visiblePrefixes(prefix)) {
    let cursor = null;
    do {
      const query = new URLSearchParams({ limit: PAGE, search });
      if (asked && asked !== "*") query.set("prefix", asked);
      if (cursor) query.set("cursor", cursor);
      const { body, sentAt } = await ask(`locks?${query}`, { signal });
      for (const lock of body.locks) {
        if (listing.peek().more && !locks.has(lock.name)) sought.add(lock.name);
        take(lock, sentAt);
        if (lock.match) matched.set(lock.name, lock.match);
      }
      found += body.locks.length;
      cursor = body.next_cursor;
      changed();
      if (found >= MOST_FOUND && cursor) return true;
    } while (cursor);
  }
  return false;
}
