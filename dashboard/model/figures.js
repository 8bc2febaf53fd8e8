// The figures of the gateway, asked for again and again, and what they were over the last minutes.

import { signal } from "../view.js";
import { ask, Problem } from "./api.js";
import { tick } from "./clock.js";
import { listing, locks } from "./locks.js";
import { route } from "./route.js";
import { seesAll, seesFigures } from "./session.js";
import { hearChecks } from "./store.js";

/** What the charts show. */
export const SPAN = 5 * 60_000;
/** How often the figures are asked for where they are shown, and elsewhere, in seconds. */
const OFTEN = 2;
const SELDOM = 10;
/** So many milliseconds without an answer are shown as a gap. */
const GAP = 15_000;
/** Rates are those of so many milliseconds: over two seconds a few grants would look like a storm. */
const RATE_WINDOW = 9_000;
/** Renewals are fewer still. */
const MARGIN_WINDOW = 30_000;

/**
 * The last answer of `GET /stats` from the gateway whose figures are shown, or null; and why there is none. Behind a
 * load balancer not every answer comes from the same one: as long as it answers, one gateway is shown.
 */
export const figures = signal(null);
export const figuresProblem = signal(null);
/** Changes with each answer, of whichever gateway. */
export const answered = signal(0);

/**
 * Oldest first: `{time, instance, held, waiters, leases, waiting, grants, refusals, margin, least}`; null is not known.
 * `held` and `waiters` are of all gateways, the others of that instance.
 */
const samples = [];

/** Those that say something of all gateways, and those of the gateway that is shown. */
export const samplesOfAll = () => samples;
export const samplesHere = () => samples.filter(({ instance }) => instance === null || instance === figures.value?.instance);

/** The last answers by instance. */
const answers = new Map();
let asked = false;
let stop = null;
let due = 0;

/** Asks if it is time to. Called once a second. */
export function lookAtFigures() {
  if (!seesFigures() || asked || document.hidden || tick.peek() < due) return;
  due = tick.peek() + (route.value.page === "overview" ? OFTEN : SELDOM);
  look();
}

async function look() {
  asked = true;
  const { signal: stopped } = (stop = new AbortController());
  try {
    const { body, sentAt } = await ask("stats", { timeout: 4_000, signal: stopped });
    hearChecks(body.checks, sentAt);
    sample(body, Date.now());
    const shown = figures.peek()?.instance;
    const last = answers.get(shown)?.at(-1).time ?? -Infinity;
    if (shown === body.instance || Date.now() - last > GAP) figures.value = body;
    answered.value += 1;
    figuresProblem.value = null;
  } catch (problem) {
    if (stopped.aborted) return;
    if (!(problem instanceof Problem)) throw problem;
    figuresProblem.value = problem;
    // The charts show that nothing is known of now.
    samples.push({ ...UNKNOWN, time: Date.now() });
    trim(Date.now());
  } finally {
    asked = false;
  }
}

const UNKNOWN = {
  instance: null, held: null, waiters: null, leases: null, waiting: null, grants: null, refusals: null, margin: null,
  least: null,
};

/** Whether what is counted in the list is all there is. */
export function countsAll() {
  const { state, more, partial } = listing.value;
  return seesAll() && state === "ready" && !more && !partial;
}

/** How many leases are held, and how many wait for them, in the list. */
export function totals() {
  let held = 0;
  let waiters = 0;
  for (const lock of locks.values()) {
    if (lock.ended) continue;
    if (!lock.rests) held += 1;
    waiters += lock.waiters ?? 0;
  }
  return { held, waiters };
}

function sample(stats, time) {
  // Where nobody has looked, nothing is known.
  if (samples.length && time - samples.at(-1).time > GAP) samples.push({ ...UNKNOWN, time: time - 1 });
  const past = answers.get(stats.instance) ?? [];
  const before = past.find((one) => one.time >= time - RATE_WINDOW)?.stats ?? past.at(-1)?.stats;
  past.push({ stats, time });
  while (past.length > 1 && past[0].time < time - MARGIN_WINDOW) past.shift();
  answers.set(stats.instance, past);
  const seconds = before ? (stats.uptime_ms - before.uptime_ms) / 1000 : 0;
  const { granted, held, refused } = stats.totals.acquires;
  const per = (now, then) => (seconds > 0 ? Math.max(0, now - then) / seconds : null);
  const then = before?.totals.acquires;
  const margins = renewals(past[0].stats.renew_margin, stats.renew_margin);
  samples.push({
    time,
    instance: stats.instance,
    ...ofAll(stats),
    leases: stats.leases,
    waiting: stats.waiters,
    grants: then ? per(granted, then.granted) : null,
    refusals: then ? per(held + refused, then.held + then.refused) : null,
    margin: quantile(margins, stats.renew_margin.bounds_ms, 0.5),
    least: quantile(margins, stats.renew_margin.bounds_ms, 0.05),
  });
  trim(time);
}

/** What is known of all gateways. Of an embedded store the one gateway knows it. */
function ofAll(stats) {
  if (countsAll()) return totals();
  const knows = stats.store === "embedded" && seesAll();
  return knows ? { held: stats.leases, waiters: stats.waiters } : { held: null, waiters: null };
}

/** Drops what no chart shows any more, also while no answer comes. */
function trim(time) {
  while (samples.length && samples[0].time < time - SPAN) samples.shift();
  for (const [instance, past] of answers) if (past.at(-1).time < time - SPAN) answers.delete(instance);
}

/** The last answer of each gateway that has answered lately, `{stats, time}`, each at a place of its own. */
export function gateways() {
  const last = [...answers.values()].map((past) => past.at(-1));
  return last.sort((one, other) => (one.stats.instance < other.stats.instance ? -1 : 1));
}

function renewals(then, now) {
  return now.counts.map((count, index) => count - then.counts[index]);
}

/** Where within a bucket something lies is not known: taken as spread evenly. */
function quantile(counts, bounds, part) {
  const all = counts.reduce((sum, count) => sum + count, 0);
  if (all === 0) return null;
  let below = 0;
  for (const [index, count] of counts.entries()) {
    if (count > 0 && below + count >= all * part) {
      const from = bounds[index - 1] ?? 0;
      const to = bounds[index] ?? from;
      return from + ((all * part - below) / count) * (to - from);
    }
    below += count;
  }
  return null;
}

/** Forgets what they say of locks that may not be seen any more. */
export function keepFigures(isSeen) {
  const stats = figures.value;
  if (stats) figures.value = { ...stats, contended: stats.contended.filter(({ name }) => isSeen(name)) };
}

/** Forgets everything. */
export function forgetFigures() {
  stop?.abort();
  samples.length = 0;
  answers.clear();
  figures.value = null;
  figuresProblem.value = null;
  due = 0;
}
