// The client of one gateway: acquires, inspects, lists and breaks locks.

import { Acquire, checkName } from './acquire.js';
import { now } from './clock.js';
import { toMs } from './duration.js';
import { LatchgateError, refusal } from './errors.js';
import { held } from './exit.js';
import { asyncDispose, isCount, locksPath } from './lease.js';
import { RETRY_MS, Retry, connect, send } from './request.js';

export class Latchgate {
  #sendCopy;
  #defaults;

  constructor(url, { key, fetch = (...args) => globalThis.fetch(...args), owner, onReleaseRequested, waits, warn = (text) => console.warn(text) } = {}) {
    let base = {};
    try {
      base = new URL(url);
    } catch {
      // The error of `URL` is dropped, because it would show the URL, which may contain a password.
    }
    if (!/^https?:$/.test(base.protocol) || base.username || base.password) {
      throw new TypeError('url: expected a URL like http://localhost:7420');
    }
    base.search = base.hash = '';
    // The key is checked here, because the message of `fetch` for a bad header would show the key.
    if (key !== undefined && !/^[!-~]+$/.test(key)) throw new TypeError('key: expected visible ASCII characters');
    this.#sendCopy = connect(base, key, fetch, warn);
    this.#defaults = { owner, onReleaseRequested, waits };
  }

  async acquire(names, options) {
    return new Acquire(this.#sendCopy, names, { ...this.#defaults, ...options }).run();
  }

  async with(names, options, work = options) {
    if (typeof work !== 'function') throw new TypeError('work: expected a function');
    const lease = await this.acquire(names, options);
    let result;
    try {
      result = await work(lease, lease.signal);
    } catch (error) {
      await lease.release().catch(() => {});
      throw error;
    }
    // The work may have released the lease itself.
    await lease[asyncDispose]();
    return result;
  }

  async inspect(name) {
    return this.#read(locksPath([checkName(name)]), name);
  }

  async history(name) {
    return this.#read(locksPath([checkName(name)], '/history'), name);
  }

  async check(name, fence, { forMs = 0 } = {}) {
    if (!fence || !isCount(fence)) throw new TypeError('fence: expected');
    const path = locksPath([checkName(name)], `/check?for_ms=${toMs(forMs, 'forMs')}`);
    const answer = await this.#look(path, fence);
    // Only 204 is the answer of a gateway: a proxy may answer with another success.
    if (answer.status !== 204) throw refusal(answer, LatchgateError);
  }

  async list(filter = {}) {
    const given = Object.entries(filter).filter(([, value]) => value !== undefined);
    return this.#read(`/locks?${new URLSearchParams(given)}`);
  }

  async break(name, { reason, fencingToken, foreignMark, all, grace } = {}) {
    const body = { reason, fencing_token: fencingToken, foreign_mark: foreignMark, all, grace_ms: toMs(grace, 'grace') };
    const request = { method: 'POST', path: locksPath([checkName(name)], '/break'), body };
    const retry = new Retry(now() + RETRY_MS);
    // The break is not sent twice: a second copy could break the lease of the next holder.
    retry.once = true;
    return done(await send(this.#sendCopy, request, retry), name);
  }

  /** The interface of `navigator.locks` for locks of the gateway. Its module is loaded when it is first used. */
  manager() {
    const loaded = import('./manager.js').then(({ LockManager }) => new LockManager(this, this.#defaults));
    loaded.catch(() => {});
    return {
      request: async (...args) => (await loaded).request(...args),
      query: async () => (await loaded).query(),
    };
  }

  /** Releases all leases of this client, and ends its acquires. */
  async close() {
    const mine = [...held].filter(([, gateway]) => gateway === this.#sendCopy);
    await Promise.allSettled(mine.map(([it]) => it.release()));
  }

  #look(path, fence) {
    return send(this.#sendCopy, { method: 'GET', path, fence }, new Retry(now() + RETRY_MS));
  }

  async #read(path, name) {
    return done(await this.#look(path), name, LatchgateError);
  }
}

function done(answer, name, Failure) {
  if (!answer.ok || (name && answer.body?.name !== name)) throw refusal(answer, Failure, [name]);
  return answer.body;
}
