// A lease: what was granted, kept for as long as it is wanted, and declared over before it can be somebody else's.

import { backoff, backgroundTimer, now, sleep, wallOffset } from './clock.js';
import { toMs } from './duration.js';
import { LeaseLost, refusal } from './errors.js';
import { held, releaseOnExit } from './exit.js';
import { ANSWER_MS, RETRY_MS, Retry, send } from './request.js';

/** How often at least the clocks are compared. */
const TICK_MS = 1_000;
/** Whoever asks for a lock again and leaves less time by this much has made another request. */
const SAME_REQUEST_MS = 500;

const TOKEN = /^[!-~]{20,}$/;

const asyncDispose = Symbol.asyncDispose ?? Symbol.for('Symbol.asyncDispose');

/** The path of one lock, or of several as one. */
export const locksPath = (names, operation = '') =>
  names.length > 1 ? `/locks?names=${names.join(',')}` : `/locks/${names[0]}${operation}`;

/** What an answer says of each of the locks; nothing, if that is not what the contract states. */
function partsOf(names, body) {
  const parts = [body?.leases ?? body?.results ?? body].flat();
  if (parts.length !== names.length || !parts.every((part) => names.includes(part?.name))) return undefined;
  const numbers = parts.flatMap((part) => [
    part.slot ?? 0,
    part.expiresInMs ?? 0,
    part.holdExpiresInMs ?? 0,
    part.releaseRequested ? part.releaseRequested.withinMs : 0,
  ]);
  const isCount = (it) => it >= 0 && Number.isSafeInteger(it);
  return [body.expiresInMs, body.renewAfterMs, body.ttlMs ?? 0, ...numbers].every(isCount) ? parts : undefined;
}

/** Clocks run at slightly different speeds, timers fire late, and work needs a moment to stop. */
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
  /** How many calls of `renew` are under way: while they try, the timer does not. */
  #renewals = 0;
  #released;
  #givesBack = false;
  /** Whether it may last for longer than what is counted on. */
  #inDoubt = false;
  #wall;
  /** For how long the machine slept since the last answer, unless somebody set the clock: only the gateway can tell which. */
  #slept = 0;
  #timer;
  #failed = 0;
  #lastFailure;
  #releaseBy = Infinity;
  /** Whether it ends because somebody asked for the lock. */
  #overdue = false;
  #tellRequest;

  constructor(sendCopy, names, answer, options) {
    const { body } = answer;
    const parts = partsOf(names, body);
    const isGrant = parts?.every((part) => Number.isSafeInteger(part.fencingToken)) && body.ttlMs > 0 && TOKEN.test(body.token);
    if (!isGrant) throw refusal(answer);
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
    return this.#isOver ? 0 : Math.max(this.#until - now(), 0);
  }

  check() {
    if (!this.#isOver) this.#tick();
    this.signal.throwIfAborted();
  }

  /** Makes it last for its TTL from now, or for another one. Retried within what is left. */
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
      // It was lost before, which says more than that it was released.
      if (error instanceof LeaseLost) Object.assign(this.signal.reason, error).message = error.message;
      else {
        this.#released = undefined;
        this.#giveBack(this.#until - now());
      }
      throw error;
    }));
  }

  [asyncDispose]() {
    return this.release();
  }

  /** Finds out how much of it is left; for one whose answer took long. */
  async confirm(signal) {
    const retry = new Retry(now() + Math.min(this.ttlMs, RETRY_MS), signal);
    const answer = await send(this.#sendCopy, this.#request('PUT', '/renew'), retry);
    const { failure } = this.#heard(answer);
    if (failure) throw failure;
  }

  /** From now on it is watched, and renewed unless that was not wanted. */
  start() {
    const { signal } = this;
    // Code that was busy may look before any timer has run.
    const { get } = Object.getOwnPropertyDescriptor(AbortSignal.prototype, 'aborted');
    const aborted = () => {
      if (!this.#isOver && now() >= this.#until) this.#tick();
      // Deno asks before it aborts, and aborts nothing that says it is.
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

  /** Gives it back while a page is closed, which waits for nothing. */
  leave() {
    if (this.#isOver) return;
    this.#end(released());
    this.#released = Promise.resolve();
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
    // Also if an answer said nothing that can be counted.
    if (!(now() < this.#until)) {
      // It is released too late if somebody has asked for the lock.
      const why = this.#overdue ? 'broken' : 'expired';
      this.#end(new LeaseLost('the lease has expired', { why, cause: this.#lastFailure }));
      // A renewal that was carried out unheard keeps it for nobody. The work has its margin to stop.
      if (this.#inDoubt || this.#renewing) backgroundTimer(() => this.#giveBack(), margin(this.ttlMs));
      return;
    }
    if (now() >= this.#renewAt && !this.#renewing && !this.#renewals) this.#renewOnce().catch(() => {});
    this.#schedule();
  };

  /** Takes it that the machine slept: what is left is less by as much. */
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

  /** Takes over what an answer says of the time that is left. */
  #renewed({ body, sentAt, sentWall }, parts) {
    const least = (field) => Math.min(...parts.map((part) => part[field] ?? Infinity));
    for (const part of parts) if (part.releaseRequested) this.#asked(part, sentAt);
    // After a renewal with a shorter TTL a gateway may say more.
    const left = Math.min(body.expiresInMs, least('expiresInMs'), this.ttlMs);
    this.#overdue = this.#releaseBy <= sentAt + left + SAME_REQUEST_MS;
    this.#until = Math.min(sentAt + left, this.#releaseBy) - margin(left);
    const atLimit = least('holdExpiresInMs') <= left;
    // Leases that were granted together are not renewed together for ever.
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
    // An error of the listener is its own, and ends nothing.
    this.releaseRequested.then(() => this.#options.onReleaseRequested?.(request, this)).catch(console.error);
  }

  // === renew ===

  /** Sends one renewal; only one is under way at a time. Resolves to what failed, if a later copy may do better. */
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
      // Without an answer it is not known whether the machine slept, so the lease is taken to be shorter.
      this.#countSleep();
      // A longer pause could use up the time that is left of the lease.
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
      // The others of a group protect nothing without it.
      if (results.some(({ code }) => code !== 'lease-lost')) this.#giveBack();
      return { failure };
    }
    const open = results.find(({ code }) => code);
    if (open) return { failure: refusal({ status: 504, body: open }), inDoubt: true, again: true };
    const parts = answer.ok && partsOf(this.names, body);
    if (!parts) return { failure: refusal(answer), inDoubt: !/^4/.test(status) };
    if (this.#isOver) return { failure: this.signal.reason };
    this.ttlMs = body.ttlMs ?? ttlMs ?? this.ttlMs;
    this.#renewed(answer, parts);
    return {};
  }

  // === the end ===

  /** Ends it for this reason, unless it is over already. */
  #end(error) {
    clearTimeout(this.#timer);
    held.delete(this);
    this.#isOver = true;
    this.#controller.abort(error);
    return this.signal.reason;
  }

  /** Releases what may be left, for nobody waits for that. */
  #giveBack(ms = this.ttlMs) {
    if (this.#givesBack) return;
    this.#givesBack = true;
    const retry = new Retry(now() + ms, undefined, true);
    send(this.#sendCopy, this.#request('DELETE'), retry).catch(() => {});
  }

  async #release() {
    const again = this.signal.reason?.why === 'released';
    if (!again) this.check();
    const left = this.#until - now();
    // Work that still goes on under it must stop before it can be somebody else's.
    this.#end(released());
    const retry = new Retry(now() + Math.min(Math.max(left, 1_000), RETRY_MS));
    retry.inDoubt = again;
    const answer = await send(this.#sendCopy, this.#request('DELETE'), retry);
    if (!answer.ok) {
      const error = refusal(answer);
      // Of several locks an earlier copy may have ended all; the gateway remembers that of one of them only.
      throw retry.doubted(error, error instanceof LeaseLost && this.names.length < 2);
    }
    const failed = answer.body?.results.filter(({ code }) => code) ?? [];
    const body = failed.find(({ code }) => code !== 'lease-lost' || !retry.inDoubt);
    if (body) throw refusal({ status: body.code === 'lease-lost' ? 410 : 504, body });
  }
}
