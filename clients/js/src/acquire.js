// Acquires: a chain of requests under one idempotency key, which keeps the place in the queue.

import { backoff, now, sleep } from './clock.js';
import { toMs } from './duration.js';
import { LeaseLost, refusal } from './errors.js';
import { Lease, locksPath } from './lease.js';
import { ANSWER_MS, RETRY_MS, Retry, send } from './request.js';

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
  throw new TypeError('a lock name has 1 to 200 ASCII letters, digits and . _ : @ ~ -');
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
  #key;
  #retry;
  /** Whether the gateway has granted it. */
  #wasGranted = false;
  #link = LINK_MS;
  /** Whether the last request was answered. */
  #answers = false;
  #began = now();

  constructor(sendCopy, names, options) {
    this.#sendCopy = sendCopy;
    this.#names = [names].flat().map(checkName);
    checkName(this.#names[0]);
    this.#options = options;
    const { wait = 0, idempotencyKey, signal } = options;
    if (idempotencyKey !== undefined && !KEY.test(idempotencyKey)) {
      throw new TypeError('idempotencyKey: expected 16 to 128 visible ASCII characters');
    }
    this.#waitMs = toMs(wait === false ? 0 : wait, 'wait');
    this.#retry = new Retry(this.#began + (this.#waitMs || RETRY_MS), signal);
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

  async run() {
    const { signal, idempotencyKey } = this.#options;
    signal?.throwIfAborted();
    this.#key = idempotencyKey ?? freshKey();
    try {
      return await this.#chain();
    } catch (error) {
      // A refusal leaves nothing behind. Under a key of the caller's somebody else may go on.
      const mayHold = signal?.aborted || this.#retry.inDoubt || this.#wasGranted;
      if (mayHold && !idempotencyKey) this.#withdraw();
      throw error;
    }
  }

  async #chain() {
    for (let hasty = 0; ; ) {
      const left = this.#waitMs ? Math.max(this.#began + this.#waitMs - now(), 0) : 0;
      const wait = Math.floor(Math.min(left, this.#link, this.#answers ? Infinity : FIRST_LINK_MS));
      const timeout = wait + (this.#waitMs ? ANSWER_MS : Math.min(ANSWER_MS, this.#retry.left));
      const answer = await this.#sendCopy(this.#request(wait), timeout, this.#options.signal);
      this.#answers = !answer.failure;
      if (answer.failure) {
        await this.#retry.after(answer);
        continue;
      }
      const lease = answer.ok && (await this.#granted(answer));
      if (lease) return lease;
      if (!answer.ok && !this.#goesOn(answer, wait)) throw refusal(answer);
      this.#retry.answered();
      if (answer.status === 400) continue;
      hasty = now() - answer.sentAt < wait / 2 || answer.status !== 423 ? hasty + 1 : 0;
      if (hasty) await sleep(Math.min(backoff(hasty), this.#retry.left), this.#options.signal);
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
    const own = !this.#options.idempotencyKey;
    switch (body?.code) {
      case 'locked':
        // It says how the lock stands, earlier copies included.
        this.#retry.inDoubt = false;
        // The last request does not wait: it takes what was granted since, and gives the place up.
        return wait > 0;
      case 'superseded':
        // An earlier copy of ours arrived late. Asking again takes the place back.
        return own && this.#retry.left > 0;
      case 'idempotency-expired':
        // A lease was granted, its answer got lost, and it is over.
        if (!own || !this.#retry.left) return false;
        this.#key = freshKey();
        return true;
      case 'invalid-request':
        // This gateway allows no wait as long as ours.
        this.#link = Math.max(wait / 2, SHORTEST_LINK_MS);
        return wait > this.#link && !!body.errors?.some(({ field }) => field === 'wait_ms');
      default:
        return false;
    }
  }

  /** The lease of an answer, or nothing if it is over already. */
  async #granted(answer) {
    const lease = new Lease(this.#sendCopy, this.#names, answer, this.#options);
    this.#wasGranted = true;
    try {
      // Nobody knows when a lease was granted whose answer took long: a renewal tells how much of it is left.
      if (answer.receivedAt - answer.sentAt > lease.ttlMs / 10 || !lease.expiresInMs) await lease.confirm(this.#options.signal);
      this.#options.signal?.throwIfAborted();
      return lease.start();
    } catch (error) {
      if (error instanceof LeaseLost && !this.#options.idempotencyKey && this.#retry.left > 0) {
        this.#wasGranted = false;
        this.#key = freshKey();
        return undefined;
      }
      throw error;
    }
  }

  /** Asks once more without waiting, which gives the place up, and releases what that brings. */
  async #withdraw() {
    const retry = new Retry(now() + Math.min(this.#body.ttl_ms ?? WITHDRAW_MS, WITHDRAW_MS), undefined, true);
    try {
      let answer;
      do {
        answer = await send(this.#sendCopy, this.#request(0), retry);
        if (answer.body?.code !== 'superseded') break;
        await sleep(backoff(1), undefined, true);
      } while (retry.left);
      const path = locksPath(this.#names);
      if (answer.ok) await send(this.#sendCopy, { method: 'DELETE', path, token: answer.body.token }, retry);
    } catch {
      // The gateway gives back what nobody comes for, at the latest with the TTL.
    }
  }
}
