// The figures of the gateway, asked for again and again, and what they were over the last hour.

import { signal } from "../view.js";
import { ask, Problem } from "./api.js";
import { here, tick, wall } from "./clock.js";
import { listing, locks } from "./locks.js";
import { route } from "./route.js";
import { seesAll, seesFigures } from "./session.js";
import { hearChecks } from "./store.js";

/** What the charts show. */
export const SPAN = 60 * 60_000;
/** So long a gateway that answers no more is listed. */
const LISTED = 5 * 60_000;
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
/** By gateway how often it was asked for its samples; `TRIES` when they were read. */
const past = new Map();

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
    // A gateway of an earlier version keeps no samples.
    if (body.store_changes) await lookAtPast(stopped);
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

/** So often the gateway whose figures are shown is asked for its samples: behind a load balancer another one may answer. */
const TRIES = 5;

/** Adds the samples of the last hour that the gateway has kept to those of this page. */
async function lookAtPast(stopped) {
  const { instance, renew_margin: margin } = figures.peek();
  const tries = past.get(instance) ?? 0;
  if (tries >= TRIES) return;
  past.set(instance, tries + 1);
  const { body } = await ask("samples", { signal: stopped }).catch((problem) => {
    // The charts fill from now on.
    if (problem instanceof Problem) return { body: {} };
    throw problem;
  });
  // Where two gateways take turns, the next request is for the one that is shown.
  if (body.instance !== instance) return tries % 2 === 0 ? lookAtPast(stopped) : undefined;
  const taken = body.samples.map(({ at, ...stats }) => {
    const shape = { ...stats, instance, store: figures.peek().store, renew_margin: { bounds_ms: margin.bounds_ms, ...stats.renew_margin } };
    return { stats: shape, time: wall(here(Date.parse(at))).getTime() };
  });
  const first = samples.find((one) => one.instance === instance)?.time ?? Infinity;
  const older = taken.filter(({ time }) => time < first);
  const points = older.flatMap(({ stats, time }, at) => {
    const before = older[at - 1];
    const isApart = before && time - before.time > 2 * GAP;
    const point = { ...pointOf(stats, time, isApart ? undefined : before, older[Math.max(0, at - 3)]), ...ofOne(stats) };
    return isApart ? [{ ...UNKNOWN, time: time - 1 }, point] : [point];
  });
  // A rate needs two counts: the first answer to this page is compared with the last sample of the gateway.
  const [live] = answers.get(instance);
  const last = older.at(-1);
  if (last) Object.assign(samples.find((one) => one.instance === instance) ?? {}, pointOf(live.stats, live.time, last, last));
  // After a restart, or where another gateway is shown, the page has older samples of its own.
  samples.push(...points);
  samples.sort((one, other) => one.time - other.time);
  past.set(instance, TRIES);
  trim(Date.now());
  answered.value += 1;
}

function sample(stats, time) {
  // Where nobody has looked, nothing is known.
  if (samples.length && time - samples.at(-1).time > GAP) samples.push({ ...UNKNOWN, time: time - 1 });
  const known = answers.get(stats.instance) ?? [];
  const before = known.find((one) => one.time >= time - RATE_WINDOW) ?? known.at(-1);
  known.push({ stats, time });
  while (known.length > 1 && known[0].time < time - MARGIN_WINDOW) known.shift();
  answers.set(stats.instance, known);
  samples.push({ ...pointOf(stats, time, before, known[0]), ...(countsAll() ? totals() : ofOne(stats)) });
  trim(time);
}

/** What the charts show of an answer: rates since the one `before`, what was left at renewals since the one that is `first`. */
function pointOf(stats, time, before, first) {
  const seconds = before ? (stats.uptime_ms - before.stats.uptime_ms || time - before.time) / 1000 : 0;
  const { granted, held, refused } = stats.totals.acquires;
  const per = (now, then) => (seconds > 0 ? Math.max(0, now - then) / seconds : null);
  const then = before?.stats.totals.acquires;
  const margins = renewals(first.stats.renew_margin, stats.renew_margin);
  return {
    time,
    instance: stats.instance,
    leases: stats.leases,
    waiting: stats.waiters,
    grants: then ? per(granted, then.granted) : null,
    refusals: then ? per(held + refused, then.held + then.refused) : null,
    margin: quantile(margins, stats.renew_margin.bounds_ms, 0.5),
    least: quantile(margins, stats.renew_margin.bounds_ms, 0.05),
  };
}

/** What one gateway knows of all: everything, if its store is embedded. */
function ofOne(stats) {
  const knows = stats.store === "embedded" && seesAll();
  return knows ? { held: stats.leases, waiters: stats.waiters } : { held: null, waiters: null };
}

/** Drops what no chart shows any more, also while no answer comes. */
function trim(time) {
  while (samples.length && samples[0].time < time - SPAN) samples.shift();
  for (const [instance, known] of answers) if (known.at(-1).time < time - LISTED) answers.delete(instance);
}

/** The last answer of each gateway that has answered lately, `{stats, time}`, each at a place of its own. */
export function gateways() {
  const last = [...answers.values()].map((known) => known.at(-1));
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
  if (!stats) return;
  // Not every gateway has all of these lists; one that may not be seen has no name in them.
  const lists = ["contended", "longest_waits", "incidents"].filter((list) => stats[list]);
  figures.value = { ...stats, ...Object.fromEntries(lists.map((list) => [list, stats[list].filter(({ name }) => name && isSeen(name))])) };
}

/** Forgets everything. */
export function forgetFigures() {
  stop?.abort();
  samples.length = 0;
  answers.clear();
  figures.value = null;
  figuresProblem.value = null;
  past.clear();
  due = 0;
}
