// Numbers, durations and times as text.

import { signal } from "../view.js";
import { kept, keep } from "./kept.js";

/** Whether times are shown in UTC, and not in the zone of the browser. */
export const isUtc = signal(kept("zone") === "utc");

export function switchZone() {
  isUtc.value = !isUtc.value;
  keep("zone", isUtc.value ? "utc" : "own");
}

/** A format of times, in the zone that is chosen; with `isOwn` in that of the browser whatever is chosen. */
function dates(options) {
  const own = new Intl.DateTimeFormat("en-GB", options);
  const utc = new Intl.DateTimeFormat("en-GB", { ...options, timeZone: "UTC" });
  return (date, isOwn = false) => (isUtc.value && !isOwn ? utc : own).format(date);
}

const COUNT = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const CLOCK = dates({ timeStyle: "medium" });
const DAY = dates({ day: "numeric", month: "short" });
const DATE = dates({ dateStyle: "short" });
const ZONE = new Intl.DateTimeFormat("en-GB", { timeZoneName: "short" });
const APPOINTMENT = dates({ weekday: "short", day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });
const EXACT = dates({
  year: "numeric",
  month: "short",
  day: "2-digit",
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
  fractionalSecondDigits: 3,
  timeZoneName: "short",
});

export const NOTHING = "–";

/** A whole number with its thousands apart. */
export function count(number) {
  return number === null || number === undefined ? NOTHING : COUNT.format(number);
}

/** A rate: few digits, but never a 0 for something that happens. */
export function rate(perSecond) {
  if (perSecond === null || perSecond === undefined) return NOTHING;
  if (perSecond === 0) return "0";
  if (perSecond < 0.1) return "<0.1";
  return perSecond < 10 ? perSecond.toFixed(1) : COUNT.format(perSecond);
}

/** A duration in the two largest units that say something. */
export function duration(ms) {
  if (ms === null || ms === undefined) return NOTHING;
  const seconds = Math.floor(Math.max(0, ms) / 1000);
  const two = (value) => String(value).padStart(2, "0");
  if (seconds < 60) return `${seconds}s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)}m ${two(seconds % 60)}s`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)}h ${two(Math.floor(seconds / 60) % 60)}m`;
  return `${Math.floor(seconds / 86_400)}d ${two(Math.floor(seconds / 3600) % 24)}h`;
}

/** A duration in which milliseconds matter. */
export function fine(ms) {
  if (ms === null || ms === undefined) return NOTHING;
  if (ms === 0) return "0";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  return ms < 9_950 ? `${(ms / 1000).toFixed(1)}s` : duration(Math.round(ms / 1000) * 1000);
}

/** The time of day, in the zone that is chosen; the day too, if it is another one than `day`. */
export function clock(date, day = new Date()) {
  const isSame = DATE(day) === DATE(date);
  return isSame ? CLOCK(date) : `${DAY(date)}, ${CLOCK(date)}`;
}

/** The time of day without its seconds, or the day, below a picture of times. */
export function timeLabel(date, isDay) {
  return isDay ? DAY(date) : CLOCK(date).slice(0, -3);
}

/** A time some days ahead: `Fri 4 Dec, 18:00`. */
export function appointment(date, isOwn) {
  return Number.isNaN(date.getTime()) ? NOTHING : APPOINTMENT(date, isOwn);
}

/** The short name of the browser's zone at that time: `CET`. */
export const ownZone = (date = new Date()) => ZONE.formatToParts(date).find(({ type }) => type === "timeZoneName").value;

/** The short name of the zone that is chosen. */
export const zoneName = () => (isUtc.value ? "UTC" : ownZone());

/** By how many milliseconds the zone that is chosen is behind UTC. */
export const zoneOffset = (date) => (isUtc.value ? 0 : date.getTimezoneOffset() * 60_000);

/** A time to the millisecond, in the zone that is chosen and in UTC. */
export function exact(date) {
  if (Number.isNaN(date.getTime())) return NOTHING;
  return `${EXACT(date)} (${date.toISOString()})`;
}

/** One of two words, by a number. */
export function plural(number, one, many) {
  return `${count(number)} ${number === 1 ? one : many}`;
}
