// Numbers, durations and times as text.

const COUNT = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const CLOCK = new Intl.DateTimeFormat("en-GB", { timeStyle: "medium" });
const DAY = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });
const APPOINTMENT = new Intl.DateTimeFormat("en-GB", { weekday: "short", day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });
const EXACT = new Intl.DateTimeFormat("en-GB", {
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

/** The time of day, in the viewer's zone; the day too, if it is another one than `day`. */
export function clock(date, day = new Date()) {
  const isSame = day.toDateString() === date.toDateString();
  return isSame ? CLOCK.format(date) : `${DAY.format(date)}, ${CLOCK.format(date)}`;
}

/** The time of day without its seconds, or the day, below a picture of times. */
export function timeLabel(date, isDay) {
  return isDay ? DAY.format(date) : CLOCK.format(date).slice(0, -3);
}

/** A time some days ahead, in the viewer's zone: `Fri 4 Dec, 18:00`. */
export function appointment(date) {
  return Number.isNaN(date.getTime()) ? NOTHING : APPOINTMENT.format(date);
}

/** A time to the millisecond, in the viewer's zone and in UTC. */
export function exact(date) {
  if (Number.isNaN(date.getTime())) return NOTHING;
  return `${EXACT.format(date)} (${date.toISOString()})`;
}

/** One of two words, by a number. */
export function plural(number, one, many) {
  return `${count(number)} ${number === 1 ? one : many}`;
}
