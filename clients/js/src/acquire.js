// An acquire: a chain of requests under one idempotency key, which keep one position in the queue.

import { backoff, now, sleep } from './clock.js';
import { toMs } from './duration.js';
import { LatchgateError, LeaseLost, refusal } from './errors.js';
import { held, releaseOnExit } from './exit.js';
import { Lease, isCount, locksPath } from './lease.js';
import { END_MS, RETRY_MS, Retry, send } from './request.js';

/** How long one request waits at the gateway: common proxies give up after 29 s. */
const LINK_MS = 25_000;
const SHORTEST_LINK_MS = 500;
/**
 * How long a request waits until the gateway has answered once: short, so that another request can follow one that
 * hangs.
 */
const FIRST_LINK_MS = 10_000;
/** The withdrawal of an acquire is tried for so long at most. */
const WITHDRAWAL_MS = 30_000;

/** Segments with `/` between; the last of several is no operation. The messages of the gateway say why. */
const NAME = /^(?!.{201})(?!.*\/(break|check|granted-order|history|hold|release|renew)$)((?!\.\.?(\/|$))[\w.:@~-]+(\/(?!$)|$))+$/;
const KEY = /^[!-~]{16,128}$/;
/** The fields of a lock that is given as an object. */
const FIELD = /^(name|mode|limit|order)$/;

export function checkName(name) {
  if (typeof name === 'string' && NAME.test(name)) return name;
  throw new TypeError('name: expected 1 to 200 ASCII letters, digits and . _ : @ ~ - /, and no path that a proxy may change');
}

function freshKey() {
  if (globalThis.crypto) return String.fromCharCode(...crypto.getRandomValues(new Uint8Array(32)).map((byte) => 97 + (byte & 15)));
  // Node 18 has no global `crypto`, and an import of a Node module would break bundles for browsers. The name of a blob
  // ends with a random UUID.
  const url = URL.createObjectURL(new Blob());
  URL.revokeObjectURL(url);
  return url.slice(-36);
}

/** One acquire, of one lock or of a group of locks. */
export class Acquire {
  #sendCopy;
  #names;
  #options;
  #body;
  #waitMs;
  /** Whether the idempotency key was made here, for this acquire only. */
  #isOwnKey;
  #key;
  /** The query of a release while no caller has the lease: without it the lock would rest although nobody used it. */
  #unused;
  #retry;
  #controller = new AbortController();
  #signal = this.#controller.signal;
  /** The body of the answer with the lease that the gateway granted. */
  #grant;
  #running;
  #withdrawn;
  #link = LINK_MS;
  /** When the first request was made. */
  #since;
  /** Whether the gateway answered the last request. */
  #answers = false;

  constructor(sendCopy, names, options) {
    this.#sendCopy = sendCopy;
    // A lock is a name, or an object with its name and a mode, a limit and an order of its own.
    const locks = [names].flat().map((lock) => {
      if (!lock?.name) return lock;
      for (const field of Object.keys(lock)) {
        if (!FIELD.test(field)) throw new TypeError(`${field}: unexpected`);
      }
      return { ...lock };
    });
    this.#names = locks.map((lock) => checkName(lock?.name ?? lock));
    checkName(this.#names[0]);
    if ((options.mode ?? options.limit) !== undefined && locks.some((lock) => lock.name)) {
      throw new TypeError('mode, limit: expected for each lock');
    }
    this.#options = options;
    const { wait = 0, idempotencyKey } = options;
    if (idempotencyKey !== undefined && !KEY.test(idempotencyKey)) {
      throw new TypeError('idempotencyKey: expected 16 to 128 visible ASCII characters');
    }
    this.#isOwnKey = idempotencyKey === undefined;
    this.#key = idempotencyKey ?? freshKey();
    this.#waitMs = toMs(wait === false ? 0 : wait, 'wait');
    this.#retry = new Retry(now() + (this.#waitMs || RETRY_MS), this.#signal);
    const ttl = toMs(options.ttl, 'ttl');
    const minHold = toMs(options.minHold, 'minHold');
    // With the caller's key another program may have used the lease.
    this.#unused = this.#isOwnKey && minHold ? `${locks.length > 1 ? '&' : '?'}unused=true` : '';
    const terms = locks.length < 2 && locks[0].name ? locks[0] : options;
    this.#body = {
      names: locks.length > 1 ? locks : undefined,
      // The gateway refuses a TTL that is shorter than the minimum hold, and chooses a missing TTL itself.
      ttl_ms: minHold > ttl ? minHold : ttl,
      min_hold_ms: minHold,
      max_hold_ms: toMs(options.maxHold, 'maxHold'),
      mode: terms.mode,
      limit: terms.limit,
      supersedes: options.supersedes,
      order: terms.order ?? options.order,
      rollback: options.rollback,
      reserve: options.reserve,
      owner: options.owner,
      metadata: options.metadata,
    };
    // JSON has no NaN: the gateway would take a limit or an order that is one for missing.
    JSON.stringify(this.#body, (field, it) => {
      if (typeof it === 'number' && !isCount(it)) throw new TypeError(`${field}: unexpected ${it}`);
      return it;
    });
  }

  run() {
    return (this.#running = this.#run());
  }

  async #run() {
    const { signal, waits = 4 } = this.#options;
    signal?.throwIfAborted();
    const abort = () => this.#controller.abort(signal.reason);
    signal?.addEventListener('abort', abort);
    releaseOnExit(this, this.#sendCopy);
    const { line } = this.#sendCopy;
    const place = this.#waitMs ? line.enter(`${this.#names}`, waits) : undefined;
    try {
      return await this.#chain(line, place);
    } catch (error) {
      // After a refusal the gateway holds nothing for this acquire. After a failure of the gateway or of `fetch` it
      // may.
      const mayHold = this.#retry.inDoubt || this.#signal.aborted || !(error instanceof LatchgateError) || error.status === 500;
      // With the caller's idempotency key another program may continue the acquire, so only a known lease is released.
      if (this.#grant?.token || ((mayHold || this.#grant) && this.#isOwnKey)) this.#withdrawn = this.#withdraw();
      throw error;
    } finally {
      held.delete(this);
      line.leave(place);
      signal?.removeEventListener('abort', abort);
    }
  }

  /** Ends the acquire and withdraws it, because its client is closed. */
  async release() {
    this.#controller.abort(new LatchgateError('the client was closed', { code: 'closed' }));
    await this.#running.catch(() => {});
    await Promise.race([this.#withdrawn, sleep(END_MS, undefined, true)]);
  }

  async #chain(line, place) {
    for (let hasty = 0, asked = false; ; asked = true) {
      // An acquire that has to stand in line first asks without a wait, because its lock may be free. An earlier
      // acquire for the same lock is served before it.
      const inLine = asked || (place && !line.isFirst(place)) ? this.#retry.left : 0;
      const longest = place && (await line.turn(place, inLine, this.#signal));
      const left = place ? this.#retry.left : 0;
      // With the caller's key every request waits at least 1 ms: a request without a wait would give up the position in
      // the queue, which the caller's next call may take.
      const least = this.#isOwnKey ? 0 : Math.min(this.#waitMs, 1);
      const most = Math.min(longest ?? 0, left, this.#link, this.#answers ? Infinity : FIRST_LINK_MS);
      const wait = Math.floor(Math.max(least, most));
      const answer = await this.#sendCopy(this.#request(wait), this.#retry.timeout(wait), this.#signal);
      this.#answers = !answer.failure;
      if (answer.failure) {
        if (place) line.next(place);
        await this.#retry.after(answer);
        continue;
      }
      const lease = answer.ok && (await this.#granted(answer));
      if (lease) return lease;
      if (!answer.ok && !this.#goesOn(answer, wait, left)) {
        throw this.#retry.doubted(refusal(answer, undefined, this.#names), answer.body?.code === 'request-replaced');
      }
      if (place) line.next(place, true);
      this.#retry.failed = 0;
      if (answer.status === 400) continue;
      hasty = now() - answer.sentAt < wait / 2 || answer.status !== 423 ? hasty + 1 : 0;
      if (hasty) await sleep(Math.min(backoff(hasty), this.#retry.left), this.#signal);
    }
  }

  #request(wait) {
    // Without this time, a waiter that continues its wait after a restart of the gateway would count as newer than those
    // that came in between. An hour is the most that a gateway takes.
    const waited = this.#since && this.#body.supersedes && Math.min((now() - this.#since) | 0, 36e5);
    this.#since ??= now();
    return {
      method: 'POST',
      path: this.#body.names ? '/locks' : locksPath(this.#names),
      idempotencyKey: this.#key,
      body: { ...this.#body, wait_ms: wait || undefined, waiting_since_ms: waited },
    };
  }

  /**
   * Whether the acquire must send a further request after this answer to a request that waited for `wait`, when `left`
   * was left of the whole wait.
   */
  #goesOn({ status, body }, wait, left) {
    switch (body?.code) {
      case 'locked':
        // The answer describes the lock after all copies of the request, so no earlier copy is in doubt.
        this.#retry.inDoubt = false;
        // The last request of the chain does not wait: it takes a lease granted since the previous request, or leaves
        // the queue. With the caller's key there is no such request, because the caller's next call may take lease or
        // position.
        return left > 0 && (this.#isOwnKey || this.#retry.left > 0);
      case 'request-replaced':
        // An earlier copy of this request arrived late and took the position. A further request takes it back.
        return this.#isOwnKey && this.#retry.left > 0;
      case 'invalid-request':
        // This gateway does not allow so long a wait, so the next request waits half as long.
        this.#link = Math.max(wait / 2, SHORTEST_LINK_MS);
        return wait > this.#link && !!body.errors?.some(({ field }) => field === 'wait_ms');
      case 'idempotency-expired':
        // A lease was granted, its answer was lost, and the lease has ended.
        if (this.#beginsAnew()) return true;
    }
    // Nearly every 409 says that no copy of the request holds anything. With `declared-differently`, the gateway has
    // refused this copy before it looked at the lock.
    if (status === 409 && !/^decl/.test(body?.code)) this.#retry.inDoubt = false;
  }

  /** The lease in an answer; `undefined` if the lease has already ended and the acquire starts again. */
  async #granted(answer) {
    this.#grant = answer.body ?? {};
    const lease = new Lease(this.#sendCopy, this.#names, answer, this.#options, this.#unused);
    try {
      // If the answer took long, it is unknown when the lease was granted: a renewal tells how much time is left.
      if (answer.receivedAt - answer.sentAt > lease.ttlMs / 10 || !lease.expiresInMs) await lease.confirm(this.#signal);
      this.#signal.throwIfAborted();
      return lease.start();
    } catch (error) {
      if (error instanceof LeaseLost && this.#beginsAnew()) return undefined;
      throw error;
    }
  }

  /**
   * Makes a new key, because the lease granted under the old key has ended. Returns false if the key is the caller's,
   * which cannot be replaced, or if no time is left.
   */
  #beginsAnew() {
    if (!this.#isOwnKey || !this.#retry.left) return false;
    this.#grant = undefined;
    this.#key = freshKey();
    return true;
  }

  /**
   * Releases the granted lease. If no lease is known, first sends a request without a wait, which returns a granted
   * lease or leaves the queue.
   */
  async #withdraw() {
    const retry = new Retry(now() + Math.min(this.#body.ttl_ms ?? Infinity, WITHDRAWAL_MS), undefined, true);
    try {
      let token = this.#grant?.token;
      while (!token) {
        const { body } = await send(this.#sendCopy, this.#request(0), retry);
        token = body?.token;
        if (body?.code !== 'request-replaced' || !retry.left) break;
        await sleep(backoff(1), undefined, true);
      }
      if (token) await send(this.#sendCopy, { method: 'DELETE', path: locksPath(this.#names) + this.#unused, token }, retry);
    } catch {
      // A failure is ignored: the gateway releases the position soon, and the lease ends with its TTL at the latest.
    }
  }
}
