// Acquires: a chain of requests under one idempotency key, which keeps the place in the queue.

import { backoff, now, sleep } from './clock.js';
import { toMs } from './duration.js';
import { LatchgateError, LeaseLost, refusal } from './errors.js';
import { held, releaseOnExit } from './exit.js';
import { Lease, locksPath } from './lease.js';
import { RETRY_MS, Retry, send } from './request.js';

/** How long one request waits: the common gateways between give up after 29 s. */
const LINK_MS = 25_000;
const SHORTEST_LINK_MS = 500;
/** The same before the gateway has answered: one that hangs is found out while there is time for another try. */
const FIRST_LINK_MS = 10_000;
/** How long an acquire is withdrawn at most: as long as a lease lasts by default. */
const WITHDRAW_MS = 30_000;

const NAME = /^(?!\.\.?$)[\w.:@~-]{1,200}$/;
const KEY = /^[!-~]{16,128}$/;

export function checkName(name) {
  if (typeof name === 'string' && NAME.test(name)) return name;
  throw new TypeError('name: expected 1 to 200 ASCII letters, digits and . _ : @ ~ -');
}

function freshKey() {
  if (globalThis.crypto) return String.fromCharCode(...crypto.getRandomValues(new Uint8Array(32)).map((byte) => 97 + (byte & 15)));
  // Node 18 has no global `crypto`, and the import of a module of Node breaks bundles for browsers. It names blobs by random UUIDs.
  const url = URL.createObjectURL(new Blob());
  URL.revokeObjectURL(url);
  return url.slice(-36);
}

/** One acquire of one lock, or of several as one. */
export class Acquire {
  #sendCopy;
  #names;
  #options;
  #body;
  #waitMs;
  /** Whether the key was made here, for this acquire alone. */
  #isOwnKey;
  #key;
  #retry;
  #controller = new AbortController();
  #signal = this.#controller.signal;
  /** What the gateway granted. */
  #grant;
  #running;
  #withdrawn;
  #link = LINK_MS;
  /** Whether the last request was answered. */
  #answers = false;

  constructor(sendCopy, names, options) {
    this.#sendCopy = sendCopy;
    this.#names = [names].flat().map(checkName);
    checkName(this.#names[0]);
    this.#options = options;
    const { wait = 0, idempotencyKey } = options;
    if (idempotencyKey !== undefined && !KEY.test(idempotencyKey)) {
      throw new TypeError('idempotencyKey: expected 16 to 128 visible ASCII characters');
    }
    this.#isOwnKey = idempotencyKey === undefined;
    this.#key = idempotencyKey ?? freshKey();
    this.#waitMs = toMs(wait === false ? 0 : wait, 'wait');
    this.#retry = new Retry(now() + (this.#waitMs || RETRY_MS), this.#signal);
    this.#body = {
      names: this.#names.length > 1 ? this.#names : undefined,
      ttl_ms: toMs(options.ttl, 'ttl'),
      max_hold_ms: toMs(options.maxHold, 'maxHold'),
      mode: options.mode,
      limit: options.limit,
      owner: options.owner,
      metadata: options.metadata,
    };
  }

  run() {
    return (this.#running = this.#run());
  }

  async #run() {
    const { signal } = this.#options;
    signal?.throwIfAborted();
    const abort = () => this.#controller.abort(signal.reason);
    signal?.addEventListener('abort', abort);
    releaseOnExit(this, this.#sendCopy);
    try {
      return await this.#chain();
    } catch (error) {
      // A refusal leaves nothing behind, unlike a failure of the gateway or of `fetch`.
      const mayHold = this.#retry.inDoubt || this.#signal.aborted || !(error instanceof LatchgateError) || error.status === 500;
      // Under a key of the caller's somebody else may go on, but not with what was granted here.
      if (this.#grant?.token || ((mayHold || this.#grant) && this.#isOwnKey)) this.#withdrawn = this.#withdraw();
      throw error;
    } finally {
      held.delete(this);
      signal?.removeEventListener('abort', abort);
    }
  }

  /** Gives up, because the client is closed. */
  async release() {
    this.#controller.abort(new LatchgateError('the client was closed', { code: 'closed' }));
    await this.#running.catch(() => {});
    await this.#withdrawn;
  }

  async #chain() {
    for (let hasty = 0; ; ) {
      const left = this.#waitMs && this.#retry.left;
      // Under a key of the caller's no copy gives up the place that the next call may take.
      const least = this.#isOwnKey ? 0 : Math.min(this.#waitMs, 1);
      const wait = Math.floor(Math.max(least, Math.min(left, this.#link, this.#answers ? Infinity : FIRST_LINK_MS)));
      const answer = await this.#sendCopy(this.#request(wait), this.#retry.timeout(wait), this.#signal);
      this.#answers = !answer.failure;
      if (answer.failure) {
        await this.#retry.after(answer);
        continue;
      }
      const lease = answer.ok && (await this.#granted(answer));
      if (lease) return lease;
      if (!answer.ok && !this.#goesOn(answer, wait)) {
        throw this.#retry.doubted(refusal(answer, undefined, this.#names), answer.status === 409 && answer.body?.code);
      }
      this.#retry.failed = 0;
      if (answer.status === 400) continue;
      hasty = now() - answer.sentAt < wait / 2 || answer.status !== 423 ? hasty + 1 : 0;
      if (hasty) await sleep(Math.min(backoff(hasty), this.#retry.left), this.#signal);
    }
  }

  #request(wait) {
    return {
      method: 'POST',
      path: this.#body.names ? '/locks' : `/locks/${this.#names[0]}`,
      idempotencyKey: this.#key,
      body: { ...this.#body, wait_ms: wait || undefined },
    };
  }

  /** Whether an answer is not the last word, given how long its request waited. */
  #goesOn({ status, body }, wait) {
    switch (body?.code) {
      case 'locked':
        // It says how the lock stands, earlier copies included.
        this.#retry.inDoubt = false;
        // The last request does not wait: it takes what was granted since, and gives the place up. Under a key of the caller's
        // the next call may take both.
        return wait > 0 && (this.#isOwnKey || this.#retry.left > 0);
      case 'superseded':
        // An earlier copy of ours arrived late. Asking again takes the place back.
        return this.#isOwnKey && this.#retry.left > 0;
      case 'idempotency-expired':
        // A lease was granted, its answer got lost, and it is over.
        return this.#beginsAnew();
      case 'invalid-request':
        // This gateway allows no wait as long as ours.
        this.#link = Math.max(wait / 2, SHORTEST_LINK_MS);
        return wait > this.#link && !!body.errors?.some(({ field }) => field === 'wait_ms');
    }
  }

  /** The lease of an answer, or nothing if it is over already. */
  async #granted(answer) {
    this.#grant = answer.body ?? {};
    const lease = new Lease(this.#sendCopy, this.#names, answer, this.#options);
    try {
      // Nobody knows when a lease was granted whose answer took long: a renewal tells how much of it is left.
      if (answer.receivedAt - answer.sentAt > lease.ttlMs / 10 || !lease.expiresInMs) await lease.confirm(this.#signal);
      this.#signal.throwIfAborted();
      return lease.start();
    } catch (error) {
      if (error instanceof LeaseLost && this.#beginsAnew()) return undefined;
      throw error;
    }
  }

  /** Takes another key, for the lease that was granted under the last one is over. A key of the caller's cannot be replaced. */
  #beginsAnew() {
    if (!this.#isOwnKey || !this.#retry.left) return false;
    this.#grant = undefined;
    this.#key = freshKey();
    return true;
  }

  /** Releases what was granted. If that is not known, it asks once more without waiting, which gives the place up. */
  async #withdraw() {
    const retry = new Retry(now() + Math.min(this.#body.ttl_ms ?? WITHDRAW_MS, WITHDRAW_MS), undefined, true);
    try {
      let token = this.#grant?.token;
      while (!token) {
        const { body } = await send(this.#sendCopy, this.#request(0), retry);
        token = body?.token;
        if (body?.code !== 'superseded' || !retry.left) break;
        await sleep(backoff(1), undefined, true);
      }
      if (token) await send(this.#sendCopy, { method: 'DELETE', path: locksPath(this.#names), token }, retry);
    } catch {
      // The gateway gives back what nobody comes for, at the latest with the TTL.
    }
  }
}
