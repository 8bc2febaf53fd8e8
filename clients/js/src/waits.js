// Which acquires of a program wait at a gateway at the same time: the others stand in line here.

import { now, sleep } from './clock.js';
import { held } from './exit.js';

/** How long an acquire stays away from the gateway, which keeps its position for five seconds. */
const AWAY_MS = 4_000;
const SHORTEST_MS = 100;
/** How often an acquire in line looks whether its own wait is over. */
const LOOK_MS = 1_000;
/**
 * An acquire that was not seen for so long has been dropped: Cloudflare Workers do so when their request is over.
 * No request of an acquire takes longer.
 */
const GONE_MS = 40_000;

const lines = new Map();

/** The line for the gateway at this origin, whose connections all clients of the program share. */
export function lineOf(origin) {
  if (!lines.has(origin)) lines.set(origin, new Line());
  return lines.get(origin);
}

class Line {
  /** The acquires that want to wait, in the order in which they came. */
  #all = [];
  #turns = 0;
  /** How many requests may wait: the most that any client of the program allows. */
  #most = 0;

  /** Joins the line, in which at most `most` requests wait, or as many as an earlier client of the program allows. */
  enter(lock, most) {
    this.#most = Math.max(this.#most, most);
    return { lock, turn: (this.#turns += 1) };
  }

  leave(place) {
    this.#all = this.#all.filter((it) => it !== place);
    this.#fill();
  }

  isFirst(place) {
    this.#see(place);
    return this.#firsts().has(place);
  }

  /**
   * Resolves when a request of this acquire may wait, to the longest wait; or to 0 when `ms` are over.
   */
  async turn(place, ms, signal) {
    for (const until = now() + ms; ; ) {
      const called = new Promise((resolve) => {
        place.call = resolve;
      });
      this.#see(place);
      this.#fill();
      if (place.waits) return this.#longest(place);
      const left = until - now();
      if (left <= 0) return 0;
      await Promise.race([called, sleep(Math.min(left, LOOK_MS), signal, true)]);
    }
  }

  /** A request of this acquire has ended. If the acquire `goesOn`, it stays, unless it is the turn of another one. */
  next(place, goesOn) {
    this.#see(place);
    const firsts = this.#firsts();
    const at = firsts.has(place) ? 0 : this.#all.indexOf(place);
    // The first one for each lock stays longest, and of the others the one that came first.
    if (goesOn && this.#waiting().some((it) => !firsts.has(it) && this.#all.indexOf(it) > at)) return;
    place.waits = false;
    place.turn = this.#turns += 1;
    place.call = goesOn && (() => {});
    this.#fill();
  }

  #see(place) {
    place.seen = now();
    this.#all = this.#all.filter(({ seen }) => now() - seen < GONE_MS);
    if (!this.#all.includes(place)) this.#all.push(place);
  }

  #waiting() {
    return this.#all.filter(({ waits }) => waits);
  }

  /** The first acquire for each lock. */
  #firsts() {
    const locks = new Set();
    return new Set(this.#all.filter(({ lock }) => !locks.has(lock) && locks.add(lock)));
  }

  #fill() {
    const firsts = this.#firsts();
    for (;;) {
      const inLine = this.#all.filter(({ call, waits }) => call && !waits);
      const [next = inLine[0]] = inLine.filter((it) => firsts.has(it)).sort((a, b) => a.turn - b.turn);
      if (!next || this.#waiting().length >= this.#most) return;
      next.waits = true;
      next.call();
    }
  }

  #longest(place) {
    const ttls = [...held].map(([{ ttlMs }, gateway]) => (gateway.line === this && ttlMs / 3) || Infinity);
    place.isLong = this.#waiting().length < this.#most;
    if (place.isLong) return Math.min(Infinity, ...ttls);
    // Requests that began while there was room take no turns. The more locks are waited for in turn, the shorter is a
    // turn, so that no acquire loses its position.
    const long = this.#waiting().filter(({ isLong }) => isLong).length;
    const turns = (AWAY_MS * (this.#most - long)) / Math.max(this.#firsts().size - long, this.#most - long);
    return Math.min(Math.max(turns, SHORTEST_MS), ...ttls);
  }
}
