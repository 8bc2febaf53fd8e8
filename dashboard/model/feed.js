// The last events that were heard, oldest first.

import { signal } from "../view.js";
import { here } from "./clock.js";
import { readPast } from "./connection.js";
import { soon } from "./soon.js";

/** How many are kept. */
export const KEPT = 5_000;

/** The kinds of events. */
export const KINDS = ["queued", "acquired", "renewed", "release-requested", "released", "expired", "lost", "broken", "stale-write-refused", "order-set", "store-changed", "gap"];

/** The kinds among which one chooses. Renewals are most of all events, and are shown or hidden by a tick box of their own. */
export const CHOICES = KINDS.filter((kind) => kind !== "renewed");

/** The kinds of event that end a lease. Later versions may have others, which change nothing here. */
export const ENDS = ["released", "expired", "broken"];

/** Whether an event is about a lease or a waiter, which has an owner. */
export const isOfCaller = ({ name, kind }) => Boolean(name) && kind !== "order-set";

/** Among so many of the last events, an end is put before the grants that follow it. */
const NEAR = 50;

const heard = [];
let number = 0;
const watchers = new Set();

/** Changes after events have come: whoever shows them reads it. */
export const feedVersion = signal(0);
const changed = soon(() => (feedVersion.value += 1), 150);

/** The number of the event that was heard last. */
export const lastNumber = () => number;

/** Takes in an event of the stream. */
export function hear(event) {
  heard.splice(placeOf(event), 0, { ...event, number: ++number, heardAt: here(Date.parse(event.at)) });
  // Cut off in lots: one at a time would move all of them each time.
  if (heard.length > KEPT * 1.1) heard.splice(0, heard.length - KEPT);
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
  heard.unshift(...unknown.map((event, at) => ({ ...event, number: at - unknown.length, heardAt: here(Date.parse(event.at)) })));
  changed();
}

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
  const left = heard.filter((event) => !event.name || isSeen(event.name));
  heard.splice(0, heard.length, ...left);
  era += 1;
  changed();
}

/** Forgets everything. */
export function forgetEvents() {
  heard.length = 0;
  looked = false;
  era += 1;
  changed();
}
