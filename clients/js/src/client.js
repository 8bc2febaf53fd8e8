// The client: one gateway, and what can be asked of it.

import { Acquire, checkName } from './acquire.js';
import { now } from './clock.js';
import { toMs } from './duration.js';
import { refusal } from './errors.js';
import { releaseOnExit } from './exit.js';
import { ANSWER_MS, RETRY_MS, Retry, connect, send } from './request.js';

export class Latchgate {
  #sendCopy;
  #defaults;

  constructor(url, { key, fetch = (...args) => globalThis.fetch(...args), owner, onReleaseRequested } = {}) {
    const base = URL.canParse?.(url) === false ? {} : new URL(url);
    if (!/^https?:$/.test(base.protocol) || base.username || base.password) {
      throw new TypeError('url: expected one such as http://localhost:7420, without credentials');
    }
    base.search = base.hash = '';
    // The message of `fetch` for a bad header would show it.
    if (key !== undefined && !/^[!-~]+$/.test(key)) throw new TypeError('key: expected visible ASCII characters');
    this.#sendCopy = connect(base, key, fetch);
    this.#defaults = { owner, onReleaseRequested };
  }

  async acquire(names, options) {
    return new Acquire(this.#sendCopy, names, { ...this.#defaults, ...options }).run();
  }

  async with(names, options, work) {
    const lease = await this.acquire(names, typeof options === 'function' ? {} : options);
    let result;
    try {
      result = await (work ?? options)(lease, lease.signal);
      lease.check();
    } catch (error) {
      await lease.release().catch(() => {});
      throw error;
    }
    // The work is done under a lease that lasted: one that cannot be given back ends with its TTL.
    await lease.release().catch(() => {});
    return result;
  }

  async inspect(name) {
    return this.#read(`/locks/${checkName(name)}`);
  }

  async list(filter = {}) {
    const given = Object.entries(filter).filter(([, value]) => value !== undefined);
    return this.#read(`/locks?${new URLSearchParams(given)}`);
  }

  async break(name, { reason, fencingToken, foreignMark, all, grace } = {}) {
    const body = { reason, fencing_token: fencingToken, foreign_mark: foreignMark, all, grace_ms: toMs(grace, 'grace') };
    const request = { method: 'POST', path: `/locks/${checkName(name)}/break`, body };
    const retry = new Retry(now() + RETRY_MS);
    for (;;) {
      const answer = await this.#sendCopy(request, ANSWER_MS);
      // A second break could hit whoever came after the first.
      if (answer.inDoubt) throw answer.failure;
      if (answer.failure) await retry.after(answer);
      else return done(answer);
    }
  }

  /** The same as `navigator.locks`, for locks of the gateway. It is loaded when it is first used. */
  manager() {
    const loaded = import('./manager.js').then(({ LockManager }) => new LockManager(this, this.#defaults));
    loaded.catch(() => {});
    return {
      request: async (...args) => (await loaded).request(...args),
      query: async () => (await loaded).query(),
    };
  }

  /** Releases all leases of this client. */
  async close() {
    await Promise.allSettled(releaseOnExit.of(this.#sendCopy).map((lease) => lease.release()));
  }

  async #read(path) {
    return done(await send(this.#sendCopy, { method: 'GET', path }, new Retry(now() + RETRY_MS)));
  }
}

function done(answer) {
  if (!answer.ok) throw refusal(answer);
  return answer.body;
}
