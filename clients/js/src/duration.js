// Parses durations as callers write them.

const UNITS = { ms: 1, s: 1e3, m: 6e4, h: 36e5, d: 864e5 };

/**
 * The milliseconds of a duration: a number of milliseconds, or a text such as '1.5s'. `undefined` stays `undefined`.
 */
export function toMs(value, what) {
  if (value === undefined) return undefined;
  const [, number, unit] = /^(\d+(?:\.\d+)?)(ms|s|m|h|d)$/.exec(value) ?? [];
  const ms = typeof value === 'number' ? value : number * UNITS[unit];
  // Only a wait may be infinite, because the client splits it; in JSON there is no infinite number.
  if (ms >= 0 && (ms < Infinity || what === 'wait')) return Math.round(ms);
  throw new TypeError(`${what}: expected milliseconds or a text like '30s'`);
}
