// A lease: what was granted, kept for as long as it is wanted, and declared over before it can be somebody else's.

import { backoff, backgroundTimer, now, sleep, wallOffset } from './clock.js';
import { toMs } from './duration.js';
import { LeaseLost, OutcomeUnknown, refusal } from './errors.js';
import { releaseOnExit } from './exit.js';
import { ANSWER_MS, RETRY_MS, Retry, send } from './request.js';

/** How often at least the clocks are compared. */
const TICK_MS = 1_000;
/** Whoever asks for a lock again and leaves less time by this much has made another request. */
const SAME_REQUEST_MS = 500;

const asyncDispose = Symbol.asyncDispose ?? Symbol.for('Symbol.asyncDispose');

/** The path of one lock, or of several as one. */
export const locksPath = (names, operation = '') =>
  names.length > 1 ? `/locks?names=${names.join(',')}` : `/locks/${names[0]}${operation}`;

export class Lease {
  #sendCopy;
  #token;
  #options;
  #controller = new AbortController();
  #until = 0;
  #renewAt = Infinity;
  #renewing;
  /** How many calls of `renew` are under way: while they try, the timer does not. */
  #renewals = 0;
  #released;
  #wall;
  #timer;
  #failed = 0;
  #lastFailure;
  #releaseBy = Infinity;
  /** Whether it ends because somebody asked for the lock. */
  #overdue = false;
  #tellRequest;

  constructor(sendCopy, names, answer, options) {
    const { body } = answer;
    const parts = body.leases ?? [body];
    this.#sendCopy = sendCopy;
    this.#token = body.token;
    this.#options = options;
    const of = (field) => Object.fromEntries(parts.map((part) => [part.name, part[field] ?? undefined]));
    this.names = names;
    this.name = names[0];
    this.fencingTokens = of('fencingToken');
    this.fencingToken = this.fencingTokens[this.name];
    this.slots = of('slot');
    this.slot = this.slots[this.name];
    this.mode = parts[0].mode;
    this.owner = body.owner ?? undefined;
    this.metadata = body.metadata;
    this.ttlMs = body.ttlMs;
    this.releaseRequested = new Promise((resolve) => {
      this.#tellRequest = resolve;
    });
    this.#renewed(answer, parts);
  }

  /** The secret that renews and releases it. Not an own property, so that no log prints it. */
  get token() {
    return this.#token;
  }

  get signal() {
    return this.#controller.signal;
  }

  get expiresInMs() {
    return this.signal.aborted ? 0 : Math.max(this.#until - now(), 0);
  }

  check() {
    if (!this.signal.aborted) this.#tick();
    this.signal.throwIfAborted();
  }

  /** Makes it last for its TTL from now, or for another one. */
  renew(ttl) {
    const ttlMs = toMs(ttl, 'ttl');
    return this.#renewInTime(ttlMs);
  }

  release() {
    return (this.#released ??= this.#release());
  }

  [asyncDispose]() {
    return this.release();
  }

  /** Finds out how much of it is left; for one whose answer took long. */
  async confirm(signal) {
    const retry = new Retry(now() + this.ttlMs, signal);
    const answer = await send(this.#sendCopy, this.#renewal(), retry);
    const { failure } = this.#heard(answer);
    if (failure) throw failure;
  }

  /** From now on it is watched, and renewed unless that was not wanted. */
  start() {
    releaseOnExit.add(this, this.#sendCopy);
    this.#schedule();
    return this;
  }

  /** Gives it back while a page is closed, which waits for nothing. */
  leave() {
    if (this.signal.aborted) return;
    this.#end('released', 'the page was closed');
    this.#released = Promise.resolve();
    this.#sendCopy({ ...this.#releaseRequest(), keepalive: true }, RETRY_MS).catch(() => {});
  }

  #renewal(ttlMs) {
    return {
      method: 'PUT',
      path: locksPath(this.names, '/renew'),
      token: this.#token,
      body: ttlMs === undefined ? undefined : { ttl_ms: ttlMs },
    };
  }

  #releaseRequest() {
    return { method: 'DELETE', path: locksPath(this.names), token: this.#token };
  }

  // === time ===

  #tick = () => {
    const offset = wallOffset();
    // Also if an answer said nothing that can be counted.
    if (!(now() < this.#until)) {
      const text = this.#overdue ? 'somebody asked for the lock, and it was not released in time' : 'the lease was not renewed in time';
      this.#end(this.#overdue ? 'broken' : 'expired', text, { cause: this.#lastFailure });
      // A renewal that arrives late would keep it for nobody.
      this.#giveBack();
      return;
    }
    // The machine slept, or somebody set the clock: only the gateway can tell which.
    const slept = offset - this.#wall > Math.min(TICK_MS, this.ttlMs / 10);
    if (slept) this.#wall = offset;
    const due = slept || now() >= this.#renewAt;
    if (due && this.#options.renew !== false && !this.#renewing && !this.#renewals) this.#renewOnce().catch(() => {});
    this.#schedule();
  };

  #schedule() {
    clearTimeout(this.#timer);
    if (this.signal.aborted) return;
    const next = Math.min(this.#until, this.#renewing || this.#renewals ? Infinity : this.#renewAt, now() + TICK_MS);
    this.#timer = backgroundTimer(this.#tick, Math.max(Math.ceil(next - now()), 1));
  }

  /** Takes over what an answer says of the time that is left. */
  #renewed({ body, sentAt, sentWall }, parts) {
    const least = (field) => Math.min(...parts.map((part) => part[field] ?? Infinity));
    const ask = parts.filter((part) => part.releaseRequested).sort((a, b) => a.releaseRequested.withinMs - b.releaseRequested.withinMs)[0];
    if (ask) this.#asked(ask, sentAt);
    const left = Math.min(body.expiresInMs, least('expiresInMs'));
    // Clocks run at slightly different speeds, timers fire late, and work needs a moment to stop.
    const margin = Math.max(Math.min(this.ttlMs / 20, 1_000), this.ttlMs / 1_000);
    this.#overdue = this.#releaseBy <= sentAt + left + SAME_REQUEST_MS;
    this.#until = Math.min(sentAt + left, this.#releaseBy) - margin;
    const atLimit = least('holdExpiresInMs') <= left;
    // Leases that were granted together are not renewed together for ever.
    const early = 1 - Math.random() / 10;
    this.#renewAt = atLimit || this.#options.renew === false ? Infinity : sentAt + body.renewAfterMs * early;
    this.#wall = sentWall;
    this.#failed = 0;
    this.#lastFailure = undefined;
  }

  #asked({ name, releaseRequested: { by, reason, withinMs } }, sentAt) {
    if (sentAt + withinMs + SAME_REQUEST_MS >= this.#releaseBy) return;
    this.#releaseBy = sentAt + withinMs;
    const request = { name, by: by ?? undefined, reason, withinMs };
    this.#tellRequest(request);
    // An error of the listener is its own.
    queueMicrotask(() => this.#options.onReleaseRequested?.(request, this));
  }

  // === renew ===

  /** Sends one renewal; only one is under way at a time. Resolves to what failed, if a later copy may do better. */
  async #renewOnce(ttlMs) {
    while (this.#renewing) await this.#renewing;
    this.signal.throwIfAborted();
    const timeout = Math.min(Math.max(this.ttlMs / 9, 250), ANSWER_MS);
    const attempt = this.#sendCopy(this.#renewal(ttlMs), timeout, this.signal)
      .then((answer) => this.#heard(answer, ttlMs))
      .catch((failure) => ({ failure }));
    this.#renewing = attempt.then(() => {
      this.#renewing = undefined;
    });
    const result = await attempt;
    await this.#renewing;
    if (result.failure && !this.signal.aborted) {
      this.#failed += 1;
      this.#lastFailure = result.failure;
      if (this.#renewAt < Infinity) this.#renewAt = now() + Math.min(backoff(this.#failed), this.ttlMs / 10);
    }
    this.#schedule();
    return result;
  }

  /** Renews now, retried within what is left. */
  async #renewInTime(ttlMs) {
    this.#renewals += 1;
    try {
      for (;;) {
        this.check();
        const { failure, again } = await this.#renewOnce(ttlMs);
        if (!failure) return;
        this.signal.throwIfAborted();
        if (!again) throw failure;
        await sleep(backoff(this.#failed), this.signal);
      }
    } finally {
      this.#renewals -= 1;
      this.#schedule();
    }
  }

  /** What came of a renewal. */
  #heard(answer, ttlMs) {
    if (answer.failure) return { failure: answer.failure, again: true };
    const { status, body } = answer;
    const results = body?.results ?? [];
    const lost = results.find(({ code }) => code === 'lease-lost');
    if (status === 410 || lost) {
      const problem = lost ? { ...lost, status: 410 } : (body ?? {});
      // Only the text tells a break from another end.
      const why = /was broken/.test(problem.detail) ? 'broken' : 'lost';
      const failure = this.#end(why, problem.detail ?? `the lease of ${problem.name} is lost`, { status: 410, problem });
      // The others of a group protect nothing without it.
      if (results.some(({ code }) => code !== 'lease-lost')) this.#giveBack();
      return { failure };
    }
    if (status !== 200) return { failure: refusal(answer) };
    const open = results.find(({ code }) => code);
    if (open) return { failure: new OutcomeUnknown(`${open.name}: ${open.detail ?? open.code}`, { problem: open }), again: true };
    if (this.signal.aborted) return { failure: this.signal.reason };
    this.ttlMs = body.ttlMs ?? ttlMs ?? this.ttlMs;
    this.#renewed(answer, body.results ?? [body]);
    return {};
  }

  // === the end ===

  #end(why, text, details) {
    clearTimeout(this.#timer);
    releaseOnExit.delete(this);
    if (!this.signal.aborted) this.#controller.abort(new LeaseLost(why, text, details));
    return this.signal.reason;
  }

  /** Releases what may be left, for nobody waits for that. */
  #giveBack() {
    const retry = new Retry(now() + Math.min(this.ttlMs, RETRY_MS), undefined, true);
    send(this.#sendCopy, this.#releaseRequest(), retry).catch(() => {});
  }

  async #release() {
    this.check();
    const left = this.expiresInMs;
    // Work that still goes on under it must stop before it can be somebody else's.
    this.#end('released', 'the lease was released');
    const retry = new Retry(now() + Math.min(Math.max(left, 1_000), RETRY_MS));
    const answer = await send(this.#sendCopy, this.#releaseRequest(), retry);
    if (!answer.ok) throw this.#notReleased(refusal(answer), retry);
    const failed = answer.body?.results?.filter(({ code }) => code) ?? [];
    // Of several locks an earlier copy may have ended all; the gateway remembers that of one of them only.
    if (!failed.length || (retry.inDoubt && failed.every(({ code }) => code === 'lease-lost'))) return;
    const [problem] = failed;
    throw problem.code === 'lease-lost'
      ? new LeaseLost('lost', problem.detail ?? `the lease of ${problem.name} is lost`, { status: 410, problem })
      : new OutcomeUnknown(`${problem.name}: ${problem.detail ?? problem.code}`, { problem });
  }

  #notReleased(error, retry) {
    const repeated = error instanceof LeaseLost && this.names.length > 1 && retry.inDoubt;
    return repeated ? new OutcomeUnknown('the leases have ended, by an earlier copy of this release or before it', error) : error;
  }
}
