// Leases that were released before their minimum hold was over: until then their lock, or their slot, rests.

/**
 * What rests of a lock, in the order in which it ends: `{fence, slot, ttl, expiresAt}`. What was known of it before
 * (`known`) says of how much it is a rest, as far as the page has seen it.
 */
export function restsOf(resting, sentAt, known) {
  const rests = resting.map(({ fencing_token: fence, slot, available_in_ms: left }) => {
    const before = known?.find((rest) => rest.fence === fence);
    return { fence, slot, ttl: Math.max(left, before?.ttl ?? 0), expiresAt: sentAt + left };
  });
  return rests.sort((one, other) => one.expiresAt - other.expiresAt);
}

/** What is to be said of them as one, of a lock that nobody holds: it is free when the last of them has ended. */
export function asRest(rests) {
  const { ttl, expiresAt } = rests.at(-1);
  return {
    rests,
    fence: Math.max(...rests.map(({ fence }) => fence)),
    owner: null,
    metadata: {},
    group: null,
    ttl,
    foreign: false,
    expiresAt,
    acquiredAt: null,
    holdEndsAt: null,
    releaseBy: null,
  };
}
