// The interface of `navigator.locks`, for locks of the gateway.

import { asyncDispose } from './lease.js';

/** How often a steal is tried while waiters of other clients are in front: each of them is granted the lock first. */
const STEALS = 100;

const noop = () => {};
const error = (name, text, cause) => Object.assign(new DOMException(text, name), cause && { cause });

// A web lock's name is any string, but the gateway allows few characters. Any other character is escaped with `~`.
const encode = (name) => {
  const dots = name === '.' || name === '..';
  const escaped = name.replace(dots ? /\./g : /[^\w.:@-]/g, (unit) => `~${unit.charCodeAt().toString(16).padStart(4, '0')}`);
  return escaped || '~';
};
const decode = (name) =>
  name === '~' ? '' : name.replace(/~([0-9a-f]{4})/g, (_, unit) => String.fromCharCode(parseInt(unit, 16)));

/** The lock that the callback of `request` receives. */
export class Lock {
  #lease;
  #name;

  constructor(name, lease) {
    this.#name = name;
    this.#lease = lease;
  }

  get name() {
    return this.#name;
  }

  get mode() {
    return this.#lease.mode;
  }

  get fencingToken() {
    return this.#lease.fencingToken;
  }

  /** A signal that is aborted when the lock is lost or stolen. */
  get signal() {
    return this.#lease.signal;
  }
}

export class LockManager {
  #client;
  #clientId;
  /** By name: the locks that this manager holds, and the requests that wait for them in this manager. */
  #queues = new Map();

  constructor(client, { owner } = {}) {
    this.#client = client;
    const id = Math.random().toString(36).slice(2, 12);
    this.#clientId = owner ? `${owner} ${id}` : id;
  }

  async request(name, ...rest) {
    if (!rest.length) throw new TypeError('expected a name and a callback');
    const [options, callback] = rest.length > 1 ? rest : [undefined, rest[0]];
    const request = parse(name, options, callback);
    return new Promise((resolve, reject) => {
      Object.assign(request, { resolve, reject });
      const queue = this.#queue(request.name);
      if (request.steal) this.#steal(queue, request);
      else if (request.ifAvailable) this.#acquireIfAvailable(queue, request);
      else this.#enqueue(queue, request);
    });
  }

  async query() {
    const held = [];
    const pending = [];
    let cursor;
    do {
      const page = await this.#client.list({ cursor });
      for (const { name, holders, waiterCount } of page.locks) {
        held.push(...holders.map(({ mode, owner }) => this.#info(name, mode, owner)));
        if (!waiterCount) continue;
        const { waiters } = await this.#client.inspect(name);
        pending.push(...waiters.filter(({ owner }) => owner !== this.#clientId).map((one) => this.#info(name, one.mode, one.owner)));
      }
      cursor = page.nextCursor ?? undefined;
    } while (cursor);
    for (const { name, requests } of this.#queues.values()) {
      pending.push(...requests.map(({ mode }) => ({ name, mode, clientId: this.#clientId })));
    }
    return { held, pending };
  }

  #info(name, mode, owner) {
    return { name: decode(name), mode: mode ?? 'exclusive', clientId: owner ?? '' };
  }

  #queue(name) {
    let queue = this.#queues.get(name);
    if (!queue) {
      queue = { name, requests: [], asking: undefined, held: new Set(), steals: 0, tries: 0 };
      this.#queues.set(name, queue);
    }
    return queue;
  }

  #forget(queue) {
    const { name, requests, held, steals, tries } = queue;
    const isLive = requests.length || held.size || steals || tries || this.#queues.get(name) !== queue;
    if (!isLive) this.#queues.delete(name);
  }

  #acquire(request, options) {
    const { mode } = request;
    return this.#client.acquire(encode(request.name), { owner: this.#clientId, mode, ...options });
  }

  // === in line: only the first request waits at the gateway, so that the requests of one manager keep their order ===

  #enqueue(queue, request) {
    queue.requests.push(request);
    const { signal } = request;
    request.onAbort = () => {
      queue.requests.splice(queue.requests.indexOf(request), 1);
      request.reject(signal.reason);
      if (queue.asking?.request === request) this.#stopAsking(queue);
      this.#ask(queue);
    };
    signal?.addEventListener('abort', request.onAbort, { once: true });
    this.#ask(queue);
  }

  #stopAsking(queue) {
    queue.asking?.controller.abort();
    queue.asking = undefined;
  }

  async #ask(queue) {
    const [request] = queue.requests;
    if (queue.asking || queue.steals) return;
    if (!request) {
      this.#forget(queue);
      return;
    }
    const asking = { request, controller: new AbortController() };
    queue.asking = asking;
    let lease;
    let failure;
    try {
      lease = await this.#acquire(request, { wait: Infinity, signal: asking.controller.signal });
    } catch (error) {
      failure = error;
    }
    if (queue.asking !== asking) {
      lease?.release().catch(noop);
      return;
    }
    queue.asking = undefined;
    queue.requests.shift();
    request.signal?.removeEventListener('abort', request.onAbort);
    if (lease) this.#run(queue, request, lease);
    else request.reject(failure);
    this.#ask(queue);
  }

  async #acquireIfAvailable(queue, request) {
    const isBehind = queue.steals || queue.requests.some(({ mode }) => request.mode === 'exclusive' || mode === 'exclusive');
    queue.tries += 1;
    try {
      const lease = isBehind ? undefined : await this.#tryAcquire(request);
      if (lease) this.#run(queue, request, lease);
      else Promise.resolve(null).then(request.callback).then(request.resolve, request.reject);
    } catch (error) {
      request.reject(error);
    }
    queue.tries -= 1;
    this.#forget(queue);
  }

  async #tryAcquire(request) {
    try {
      return await this.#acquire(request, { wait: 0 });
    } catch (error) {
      if (error.code === 'locked') return undefined;
      throw error;
    }
  }

  /**
   * Breaks the lock until it is granted to this request. Waiters of other clients are served before it, and are broken,
   * too.
   */
  async #steal(queue, request) {
    queue.steals += 1;
    const before = queue.stealing;
    let done;
    queue.stealing = new Promise((resolve) => {
      done = resolve;
    });
    await before;
    this.#stopAsking(queue);
    try {
      let lease = await this.#tryAcquire(request);
      for (let left = STEALS; !lease; left -= 1) {
        if (!left) throw error('AbortError', 'other waiters are granted the lock again and again');
        await this.#break(queue);
        lease = await this.#tryAcquire(request);
      }
      this.#run(queue, request, lease);
    } catch (error) {
      request.reject(error);
    }
    queue.steals -= 1;
    done();
    this.#ask(queue);
  }

  async #break(queue) {
    try {
      await this.#client.break(encode(queue.name), { reason: 'stolen by a lock manager', all: true });
    } catch (error) {
      if (error.code !== 'not-held') throw error;
    }
    for (const held of queue.held) held.lose();
  }

  // === held ===

  async #run(queue, request, lease) {
    const { callback, resolve, reject } = request;
    const held = {
      lose: () => {
        queue.held.delete(held);
        lease.signal.removeEventListener('abort', held.lose);
        reject(error('AbortError', 'the lock was stolen or lost', lease.signal.reason));
        // The release aborts the lease's signal now, and not only with the next renewal.
        lease.release().catch(noop);
      },
    };
    queue.held.add(held);
    lease.signal.addEventListener('abort', held.lose);
    try {
      const value = await Promise.resolve(new Lock(request.name, lease)).then(callback);
      // The clock is checked, because no timer may have run since.
      lease.check();
      lease.signal.removeEventListener('abort', held.lose);
      // If the lock was lost, the work's result is no success.
      await lease[asyncDispose]().catch((lost) => {
        throw error('AbortError', 'the lock was lost, or may have been', lost);
      });
      resolve(value);
    } catch (failure) {
      lease.signal.removeEventListener('abort', held.lose);
      await lease.release().catch(noop);
      reject(failure);
    }
    queue.held.delete(held);
    this.#forget(queue);
  }
}

function parse(name, options, callback) {
  name = `${name}`;
  if (options !== undefined && options !== null && typeof options !== 'object' && typeof options !== 'function') {
    throw new TypeError('options: expected an object');
  }
  const { ifAvailable = false, mode: given = 'exclusive', signal, steal = false } = options ?? {};
  const mode = `${given}`;
  if (mode !== 'exclusive' && mode !== 'shared') throw new TypeError("mode: expected 'exclusive' or 'shared'");
  if (signal !== undefined && !(signal instanceof AbortSignal)) throw new TypeError('signal: expected an AbortSignal');
  if (typeof callback !== 'function') throw new TypeError('callback: expected a function');
  if (name.startsWith('-')) throw error('NotSupportedError', "names that begin with '-' are reserved");
  if (steal && ifAvailable) throw error('NotSupportedError', 'steal and ifAvailable exclude each other');
  if (steal && mode !== 'exclusive') throw error('NotSupportedError', 'only an exclusive lock can be stolen');
  if (signal && (steal || ifAvailable)) throw error('NotSupportedError', 'signal has no meaning without a wait');
  signal?.throwIfAborted();
  return { name, mode, ifAvailable, steal, signal, callback };
}
