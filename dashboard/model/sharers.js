// Those who share a lock: several leases of one name, each with an end of its own.

import { here, now, times } from "./clock.js";

/**
 * The leases that are known to share a lock, by fencing token: `{fence, slot, owner, metadata, group, waiting, ttl, heardAt,
 * expiresAt, acquiredAt, holdEndsAt, releaseBy}`. An answer shows a part of many.
 */
export function sharersOf(holders, sentAt) {
  const leases = new Map();
  for (const holder of holders) {
    const { fencing_token: fence, slot, owner, metadata, group, waiting = false, ttl_ms: ttl } = holder;
    leases.set(fence, { fence, slot, owner, metadata, group, waiting, ttl, heardAt: sentAt, ...times(holder, sentAt) });
  }
  return leases;
}

/** The lease of an event that tells of its grant. Events tell no metadata and no group. */
export function sharerOf({ fencing_token: fence, slot, owner, waiting = false, expires_in_ms: left, at }) {
  const known = { fence, slot: slot ?? null, owner, metadata: null, group: null, waiting, ttl: left, heardAt: now() };
  return { ...known, expiresAt: now() + left, acquiredAt: here(Date.parse(at)), holdEndsAt: null, releaseBy: null };
}

/** When the first of those who were asked to release the lock has to have done it. */
export function firstRelease(leases) {
  const first = Math.min(...leases.map(({ releaseBy }) => releaseBy ?? Infinity));
  return first === Infinity ? null : first;
}

/** What is to be said of them as one: the lock is free when the last of them has ended. */
export function asOne(leases, count) {
  const all = [...leases.values()];
  const last = all.reduce((one, other) => (other.expiresAt > one.expiresAt ? other : one));
  const isOne = count === 1 && all.length === 1;
  const isKnown = all.every(({ metadata }) => metadata !== null);
  return {
    shared: true,
    leases,
    count,
    fence: Math.max(...leases.keys()),
    owner: isOne ? last.owner : null,
    metadata: !isKnown ? null : isOne ? last.metadata : {},
    ttl: last.ttl,
    foreign: false,
    waiting: all.every(({ waiting }) => waiting),
    expiresAt: last.expiresAt,
    acquiredAt: Math.min(...all.map(({ acquiredAt }) => acquiredAt)),
    holdEndsAt: isOne ? last.holdEndsAt : null,
    releaseBy: firstRelease(all),
  };
}
