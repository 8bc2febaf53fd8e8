// The last events that were heard, oldest first.

import { signal } from "../view.js";
import { here } from "./clock.js";
import { readPast } from "./connection.js";
import { seesFigures } from "./session.js";
import { soon } from "./soon.js";

/** How many are kept. */
export const KEPT = 5_000;

/** The kinds of events. */
export const KINDS = ["queued", "acquired", "renewed", "release-requested", "released", "expired", "lost", "broken", "stale-write-refused", "order-set", "store-changed", "gap"];

/** The kinds among which one chooses. Renewals are most of all events, and are shown or hidden by a tick box of their own. */
export const CHOICES = KINDS.filter((kind) => kind !== "renewed");

/** The kinds of event that end a lease. Later versions may have others, which change nothing here. */
export const ENDS = ["released", "expired", "broken"];

/** The kinds of event that need somebody. */
export const INCIDENTS = ["broken", "lost", "stale-write-refused"];
const isIncident = ({ kind }) => INCIDENTS.includes(kind);

/** Whether an event is about a lease or a waiter, which has an owner. */
export const isOfCaller = ({ name, kind }) => Boolean(name) && kind !== "order-set";

/** Among so many of the last events, an end is put before the grants that follow it. */
const NEAR = 50;

/** So many events that need somebody are not pushed out by others. */
const INCIDENTS_KEPT = 100;

const heard = [];
const momentNow = () => new Date().toISOString();
/** Since when no event that needs somebody is missing. */
let since = momentNow();
let number = 0;
const watchers = new Set();

/** Changes after events have come: whoever shows them reads it. */
export const feedVersion = signal(0);
const changed = soon(() => (feedVersion.value += 1), 150);

/** The number of the event that was heard last. */
export const lastNumber = () => number;

/** Takes in an event of the stream. */
export function hear(event) {
  const told = { ...event, number: ++number, heardAt: here(Date.parse(event.at)) };
  heard.splice(placeOf(event), 0, told);
  if (event.kind === "gap") since = event.at;
  // Cut off in lots: one at a time would move all of them each time.
  if (heard.length > KEPT * 1.1) heard.unshift(...heard.splice(0, heard.length - KEPT).filter(isIncident).slice(-INCIDENTS_KEPT));
  for (const to of watchers) to(event);
  changed();
}

/**
 * The index of an event among those that are kept. The end of a lease may be heard after the grant of the next holder; the
 * larger fencing token shows which lease is the later one.
 */
function placeOf({ name, kind, mode, fencing_token: fence }) {
  if (!ENDS.includes(kind) || mode !== "exclusive" || !fence) return heard.length;
  const first = Math.max(0, heard.length - NEAR);
  const later = heard.slice(first).findIndex((event) => event.name === name && event.fencing_token > fence);
  return later < 0 ? heard.length : first + later;
}

/** Counts what may be asked for no more: answers from before are thrown away. */
let era = 0;
let looked = false;

/** Puts the events from before the page was opened in front of the others, once. Nobody is told of them. */
export async function lookBack() {
  if (looked) return;
  looked = true;
  const mine = era;
  const past = await readPast();
  if (mine !== era) return void (looked = false);
  const known = new Set(heard.map(({ id }) => id));
  const unknown = past.filter(({ id }) => !known.has(id));
  const older = unknown.map((event, at) => ({ ...event, number: at - unknown.length, heardAt: here(Date.parse(event.at)) }));
  heard.unshift(...older);
  // Behind a gap that was heard since, the earlier events say nothing.
  if (older.length > 0 && !heard.some(({ kind }) => kind === "gap")) since = older[0].at;
  changed();
}

/** The last events that need somebody, and since when none of them is missing. */
export const incidentsHeard = () => ({ since, incidents: heard.filter(isIncident) });

/** Has each event told to `to` until the function that is returned is called. */
export function watch(to) {
  watchers.add(to);
  return () => watchers.delete(to);
}

/** The events that are kept, oldest first; not to be changed. */
export const events = () => heard;

/** The last events of one lock, newest first, without its renewals; a gap concerns every lock. */
export function eventsOf(name, most) {
  const found = [];
  for (let at = heard.length - 1; at >= 0 && found.length < most; at -= 1) {
    const { name: of, kind } = heard[at];
    if ((of === name && kind !== "renewed") || kind === "gap") found.push(heard[at]);
  }
  return found;
}

/** Forgets those of locks that may not be seen any more. */
export function keepEvents(isSeen) {
  const left = heard.filter(({ name, kind }) => (name ? isSeen(name) : kind === "gap" || seesFigures()));
  heard.splice(0, heard.length, ...left);
  // What may be seen only now was not heard before.
  since = momentNow();
  era += 1;
  changed();
}

/** Forgets everything. */
export function forgetEvents() {
  heard.length = 0;
  since = momentNow();
  looked = false;
  era += 1;
  changed();
}
