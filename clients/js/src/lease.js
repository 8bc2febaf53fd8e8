// A lease: renews itself until it is released, and counts as lost before another caller can get the lock.

import { backoff, backgroundTimer, now, sleep, wallOffset } from './clock.js';
import { toMs } from './duration.js';
import { LeaseLost, refusal } from './errors.js';
import { held, releaseOnExit } from './exit.js';
import { ANSWER_MS, END_MS, RETRY_MS, Retry, send } from './request.js';

/** The maximum time between two comparisons of the monotonic clock with the wall clock. */
const TICK_MS = 1_000;
/** A release request counts as a new one if it ends earlier than the last one by at least this time. */
const SAME_REQUEST_MS = 500;

const TOKEN = /^[!-~]{20,}$/;

export const asyncDispose = Symbol.asyncDispose ?? Symbol.for('Symbol.asyncDispose');

/** The path of one lock, or of a group of locks. */
export const locksPath = (names, operation = '') =>
  names.length > 1 ? `/locks?names=${names.join(',')}` : `/locks/${names[0].replace(/\//g, '%2F')}${operation}`;

/** Whether a number is a count that JSON carries exactly. */
export const isCount = (it) => it >= 0 && Number.isSafeInteger(it);

/** What an answer says about each lock of the lease; `undefined` if the answer does not follow the API. */
function partsOf(names, body) {
  const parts = [body?.leases ?? body?.results ?? body].flat();
  if (parts.length !== names.length || !parts.every((part) => names.includes(part?.name))) return undefined;
  const numbers = parts.flatMap((part) => [
    part.slot ?? 0,
    part.expiresInMs ?? 0,
    part.holdExpiresInMs ?? 0,
    part.releaseRequested ? part.releaseRequested.withinMs : 0,
  ]);
  return [body.expiresInMs, body.renewAfterMs, body.ttlMs ?? 0, ...numbers].every(isCount) ? parts : undefined;
}

/**
 * How much earlier a lease ends for its holder: clocks differ in speed, timers fire late, and work needs time to stop.
 */
const margin = (ttlMs) => Math.max(Math.min(ttlMs / 20, 1_000), ttlMs / 1_000);

const released = () => new LeaseLost('the lease was released', { why: 'released' });

export class Lease {
  #sendCopy;
  #token;
  #options;
  #controller = new AbortController();
  #isOver = false;
  #until = 0;
  #renewAt = Infinity;
  #renewing;
  /** The number of calls of `renew` under way. While there is one, the timer sends no renewals. */
  #renewals = 0;
  #released;
  #givesBack = false;
  /** Whether the lease may last longer at the gateway than this client counts on. */
  #inDoubt = false;
  #wall;
  /**
   * How long the machine slept since the last answer. If the wall clock was set instead, only the gateway's answer can
   * show that.
   */
  #slept = 0;
  #timer;
  #failed = 0;
  #lastFailure;
  /** The query of a release while no caller has the lease. */
  #unused;
  #releaseBy = Infinity;
  /** Whether the lease ends because another caller requested its release. */
  #overdue = false;
  #tellRequest;

  constructor(sendCopy, names, answer, options, unused) {
    const { body } = answer;
    const parts = partsOf(names, body);
    const isGrant = parts?.every((part) => isCount(part.fencingToken)) && body.ttlMs > 0 && TOKEN.test(body.token);
    if (!isGrant) throw refusal(answer, undefined, names);
    this.#sendCopy = sendCopy;
    this.#token = body.token;
    this.#options = options;
    this.#unused = unused;
    const of = (field) => Object.fromEntries(parts.map((part) => [part.name, part[field] ?? undefined]));
    this.names = names;
    this.name = names[0];
    this.fencingTokens = of('fencingToken');
    this.fencingToken = this.fencingTokens[this.name];
    this.slots = of('slot');
    this.slot = this.slots[this.name];
    this.modes = of('mode');
    this.mode = this.modes[this.name];
    this.owner = body.owner ?? undefined;
    this.metadata = body.metadata;
    this.ttlMs = body.ttlMs;
    this.releaseRequested = new Promise((resolve) => {
      this.#tellRequest = resolve;
    });
    this.#renewed(answer, parts);
  }

  /** The secret that renews and releases the lease. It is not an own property, so that no log prints it. */
  get token() {
    return this.#token;
  }

  get signal() {
    return this.#controller.signal;
  }

  get expiresInMs() {
    return this.#isOver ? 0 : Math.max(this.#until - now(), 0);
  }

  check() {
    if (!this.#isOver) this.#tick();
    this.signal.throwIfAborted();
  }

  /** Makes the lease last for its TTL from now, or for the given TTL. Retries for as long as the lease lasts. */
  async renew(ttl) {
    const ttlMs = toMs(ttl, 'ttl');
    this.#renewals += 1;
    try {
      for (;;) {
        this.check();
        const { failure, again, pause } = await this.#renewOnce(ttlMs);
        if (!failure) return;
        this.signal.throwIfAborted();
        if (!again) throw failure;
        await sleep(pause, this.signal);
      }
    } finally {
      this.#renewals -= 1;
      this.#schedule();
    }
  }

  release() {
    return (this.#released ??= this.#release().catch((error) => {
      // The lease had been lost before its release. The reason of the signal now says so.
      if (error instanceof LeaseLost) Object.assign(this.signal.reason, error).message = error.message;
      else if (error.status !== 410) {
        this.#released = undefined;
        // A program that ends now is not held up by another copy.
        sleep(backoff(1), undefined, true).then(() => this.#giveBack(this.#until - now()));
      }
      throw error;
    }));
  }

  /**
   * Releases the lease, because the work is done. Rejects only if the lease is over, and was lost or may have been. After
   * another failure it is not known whether the lease was lost, which the log says.
   */
  [asyncDispose]() {
    return this.release().catch((error) => {
      if (error instanceof LeaseLost || error.status === 410) throw error;
      this.#sendCopy.warn(`latchgate: it is not known whether ${this.names} was held until its release: ${error.message}`);
    });
  }

  /** Renews the lease once to learn how much time is left. For a lease whose answer took long. */
  async confirm(signal) {
    const retry = new Retry(now() + Math.min(this.ttlMs, RETRY_MS), signal);
    const answer = await send(this.#sendCopy, this.#request('PUT', '/renew'), retry);
    const { failure } = this.#heard(answer);
    if (failure) throw failure;
  }

  /** Starts to watch the lease, and to renew it unless the caller does not want that. */
  start() {
    this.#unused = '';
    const { signal } = this;
    // Code that kept the runtime busy may read `aborted` before a timer has run, so the getter checks the clock.
    const { get } = Object.getOwnPropertyDescriptor(AbortSignal.prototype, 'aborted');
    const aborted = () => {
      if (!this.#isOver && now() >= this.#until) this.#tick();
      // Deno reads `aborted` before it aborts a signal, and does not abort one that already says true.
      return get.call(signal);
    };
    Object.defineProperty(signal, 'aborted', { get: aborted });
    signal.throwIfAborted = () => {
      if (aborted()) throw signal.reason;
    };
    releaseOnExit(this, this.#sendCopy);
    this.#schedule();
    return this;
  }

  /** Releases the lease while a page is closed. No code waits for the answer. */
  leave() {
    if (this.#isOver) return;
    // A page that comes back has not held the lock meanwhile.
    this.#end(new LeaseLost('the page was left', { why: 'lost' }));
    this.#sendCopy({ ...this.#request('DELETE'), keepalive: true }, RETRY_MS).catch(() => {});
  }

  #request(method, operation, body) {
    return { method, path: locksPath(this.names, operation), token: this.#token, body };
  }

  // === time ===

  #tick = () => {
    const offset = wallOffset();
    this.#wall = Math.min(this.#wall, offset);
    if (offset - this.#wall > Math.min(TICK_MS, this.ttlMs / 10)) {
      this.#slept += offset - this.#wall;
      this.#wall = offset;
      if (this.#options.renew === false) this.#countSleep();
      else this.#renewAt = now();
    }
    // The condition is negated, so that a lease also ends if its end is NaN because an answer had no usable times.
    if (!(now() < this.#until)) {
      // If a release was requested, the lease was not released in time and has been broken.
      const why = this.#overdue ? 'broken' : 'expired';
      this.#end(new LeaseLost('the lease has expired', { why, cause: this.#lastFailure }));
      // A renewal without an answer may have extended the lease, which nobody uses now. It is released when the work
      // has had time to stop.
      if (this.#inDoubt || this.#renewing) backgroundTimer(() => this.#giveBack(), margin(this.ttlMs));
      return;
    }
    if (now() >= this.#renewAt && !this.#renewing && !this.#renewals) this.#renewOnce().catch(() => {});
    this.#schedule();
  };

  /** Assumes that the machine slept, and shortens the time left of the lease accordingly. */
  #countSleep() {
    this.#inDoubt ||= this.#slept > 0;
    this.#until -= this.#slept;
    this.#slept = 0;
  }

  #schedule() {
    clearTimeout(this.#timer);
    if (this.#isOver) return;
    const next = Math.min(this.#until, this.#renewing || this.#renewals ? Infinity : this.#renewAt, now() + TICK_MS);
    this.#timer = backgroundTimer(this.#tick, Math.max(Math.ceil(next - now()), 1));
  }

  /** Takes the times and release requests from an answer that describes the lease. */
  #renewed({ body, sentAt, sentWall }, parts) {
    const least = (field) => Math.min(...parts.map((part) => part[field] ?? Infinity));
    for (const part of parts) if (part.releaseRequested) this.#asked(part, sentAt);
    // After a renewal with a shorter TTL, the gateway may report more time than the TTL.
    const left = Math.min(body.expiresInMs, least('expiresInMs'), this.ttlMs);
    this.#overdue = this.#releaseBy <= sentAt + left + SAME_REQUEST_MS;
    this.#until = Math.min(sentAt + left, this.#releaseBy) - margin(left);
    const atLimit = least('holdExpiresInMs') <= left;
    // The time is shortened at random, so that leases granted together are not always renewed together.
    const early = 1 - Math.random() / 10;
    this.#renewAt = atLimit || this.#options.renew === false ? Infinity : sentAt + body.renewAfterMs * early;
    this.#wall = sentWall;
    this.#slept = 0;
    this.#failed = 0;
    this.#lastFailure = undefined;
    this.#inDoubt = false;
  }

  #asked({ name, releaseRequested: { by, reason, withinMs } }, sentAt) {
    if (sentAt + withinMs + SAME_REQUEST_MS >= this.#releaseBy) return;
    this.#releaseBy = sentAt + withinMs;
    const request = { name, by: by ?? undefined, reason, withinMs };
    this.#tellRequest(request);
    // An error of the listener is printed, and does not end the lease.
    this.releaseRequested.then(() => this.#options.onReleaseRequested?.(request, this)).catch(console.error);
  }

  // === renew ===

  /**
   * Sends one renewal; only one is under way at a time. Resolves to the failure, and whether a further renewal may
   * succeed.
   */
  async #renewOnce(ttlMs) {
    while (this.#renewing) await this.#renewing;
    this.signal.throwIfAborted();
    const timeout = Math.min(Math.max(this.ttlMs / 9, 250), ANSWER_MS);
    this.#renewing = this.#sendCopy(this.#request('PUT', '/renew', { ttl_ms: ttlMs }), timeout, this.signal)
      .then((answer) => this.#heard(answer, ttlMs))
      .catch((failure) => ({ failure }));
    const result = await this.#renewing;
    this.#renewing = undefined;
    if (result.failure && !this.#isOver) {
      this.#failed += 1;
      this.#lastFailure = result.failure;
      if (result.inDoubt) this.#inDoubt = true;
      // Without an answer it is unknown whether the machine slept, so the lease is assumed to be shorter.
      this.#countSleep();
      // The pause is bounded: a longer one could use up the time left of the lease.
      result.pause = Math.min(backoff(this.#failed, result.pauseMs), this.ttlMs / 10);
      if (this.#renewAt < Infinity) this.#renewAt = now() + result.pause;
    }
    this.#schedule();
    return result;
  }

  /** Applies the answer to a renewal. Returns the failure, if there is one. */
  #heard(answer, ttlMs) {
    if (answer.failure) return { ...answer, again: true };
    const { status, body } = answer;
    const results = [body?.results ?? []].flat();
    const lost = results.find(({ code }) => code === 'lease-lost');
    if (status === 410 || lost) {
      const failure = this.#end(refusal({ status: 410, body: lost ?? body }, LeaseLost));
      // If the lease of one lock of a group is lost, the leases of the other locks are released.
      if (results.some(({ code }) => code !== 'lease-lost')) this.#giveBack();
      return { failure };
    }
    const open = results.find(({ code }) => code);
    if (open) return { failure: refusal({ status: 504, body: open }), inDoubt: true, again: true };
    const parts = answer.ok && partsOf(this.names, body);
    if (!parts) return { failure: refusal(answer, undefined, this.names), inDoubt: !/^4/.test(status) };
    if (this.#isOver) return { failure: this.signal.reason };
    this.ttlMs = body.ttlMs ?? ttlMs ?? this.ttlMs;
    this.#renewed(answer, parts);
    return {};
  }

  // === the end ===

  /** Ends the lease for this reason, unless it has already ended. Returns the first reason. */
  #end(error) {
    clearTimeout(this.#timer);
    held.delete(this);
    this.#isOver = true;
    this.#controller.abort(error);
    return this.signal.reason;
  }

  /** Releases in the background what the gateway may still hold of the lease. */
  #giveBack(ms = this.ttlMs) {
    if (this.#givesBack) return;
    this.#givesBack = true;
    const retry = new Retry(now() + ms, undefined, true);
    const request = this.#request('DELETE');
    request.path += this.#unused;
    send(this.#sendCopy, request, retry).catch(() => {});
  }

  async #release() {
    const again = this.signal.reason?.why === 'released';
    if (!again) this.check();
    // The signal is aborted before the release is sent: work that still uses the lease must stop before another caller
    // can get the lock.
    this.#end(released());
    const retry = new Retry(Math.min(this.#until, now() + END_MS));
    retry.inDoubt = again;
    const answer = await send(this.#sendCopy, this.#request('DELETE'), retry);
    // An earlier copy without an answer may have released the lease that this copy reports as lost.
    if (!answer.ok) throw retry.doubted(refusal(answer));
    const failed = answer.body?.results.filter(({ code }) => code) ?? [];
    // For a group, a lost lock is told first, and the other locks are released in the background.
    const lost = failed.find(({ code }) => code === 'lease-lost');
    if (lost && failed.some(({ code }) => code !== lost.code)) this.#giveBack(this.#until - now());
    if (failed.length) throw retry.doubted(refusal({ status: lost ? 410 : 504, body: lost ?? failed[0] }));
  }
}
