// How long a lock is usually held and waited for, by the leases in its history.

/** With fewer leases nothing is usual. */
const LEAST_LEASES = 10;
/** What is held less than so many times the median is not longer than usual, however alike the other leases are. */
const LEAST_TIMES = 2;

/**
 * `{leases, hold, wait}` of the entries of a history, `hold` and `wait` with `median` and `p95` in milliseconds; null if
 * too few leases were released. A lease that was broken or expired does not show how long the work takes.
 */
export function usualOf(entries) {
  const ended = entries.filter(({ ended, acquired_at: from, ended_at: to }) => ended === "released" && from && to);
  if (ended.length < LEAST_LEASES) return null;
  const holds = ended.map(({ acquired_at: from, ended_at: to }) => Math.max(0, Date.parse(to) - Date.parse(from)));
  const waits = ended.map(({ waited_ms: waited }) => waited).filter((waited) => waited !== null);
  return { leases: ended.length, hold: middle(holds), wait: middle(waits) };
}

function middle(values) {
  if (values.length === 0) return null;
  const sorted = values.sort((one, other) => one - other);
  const at = (part) => sorted[Math.ceil(sorted.length * part) - 1];
  return { median: at(0.5), p95: at(0.95) };
}

/** How many times longer than the median something is held, if that is longer than usual; null otherwise. */
export function timesLonger(held, usual) {
  if (!usual || held <= usual.hold.p95 || held < LEAST_TIMES * usual.hold.median) return null;
  return held / Math.max(1, usual.hold.median);
}

/** `6x`, with one digit behind the point where it matters. */
export const asTimes = (times) => `${times < 10 ? times.toFixed(1).replace(/\.0$/, "") : Math.round(times)}x`;

/**
 * In how long the waiter at this position gets the lock: `{ms, before}`, an estimate by the median hold. Null if nothing is
 * usual, if the holder holds the lock longer than usual, or if somebody shares the lock or wants to. `holders` are those of
 * an inspection, with `shown`.
 */
export function estimate({ holders, waiters }, position, usual, now) {
  if (!usual || [...holders, ...waiters].some(({ mode }) => mode === "shared")) return null;
  const first = holders.length > 0 ? leftOf(holders[0], usual.hold, now) : 0;
  return first === null ? null : { ms: Math.max(0, first) + (position - 1) * usual.hold.median, before: position - 1 };
}

function leftOf({ reservation, shown: { acquiredAt, expiresAt } }, { median, p95 }, now) {
  if (reservation) return expiresAt - now;
  const held = now - acquiredAt;
  return held <= median ? median - held : held <= p95 ? p95 - held : null;
}
