// The rig and small assertions, for every runtime: only fetch and timers.

import { Latchgate } from '../src/index.js';

export class Skipped extends Error {}

export const now = () => performance.now();
export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

export function ok(value, what) {
  if (!value) throw new Error(`expected ${what}`);
}

export function equal(actual, expected, what) {
  const [a, b] = [actual, expected].map((value) => JSON.stringify(value) ?? String(value));
  if (a !== b) throw new Error(`${what}: expected ${b}, found ${a}`);
}

export function between(actual, least, most, what) {
  if (!(actual >= least && actual <= most)) throw new Error(`${what}: expected ${least} to ${most}, found ${actual}`);
}

/** The error of a promise that is to be rejected, or of a function that is to throw. */
export async function rejected(promise, type) {
  let value;
  try {
    value = await (typeof promise === 'function' ? promise() : promise);
  } catch (error) {
    if (type && !(error instanceof type)) throw new Error(`expected ${type.name}, found ${error?.stack ?? error}`);
    return error;
  }
  throw new Error(`expected ${type?.name ?? 'an error'}, found ${String(value)}`);
}

/** The promise, or a failure if it takes longer. The timer also keeps the process alive. */
export function within(ms, promise, what) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${what}: not within ${ms} ms`)), ms);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

/** Asks until the answer is true. */
export async function until(ms, question, what) {
  const end = now() + ms;
  for (;;) {
    const answer = await question();
    if (answer) return answer;
    if (now() > end) throw new Error(`${what}: not within ${ms} ms`);
    await sleep(20);
  }
}

export const aborted = (signal) =>
  new Promise((resolve) => {
    if (signal.aborted) resolve(signal.reason);
    else signal.addEventListener('abort', () => resolve(signal.reason), { once: true });
  });

export async function rig(url, path, body, method = body ? 'POST' : 'GET') {
  const response = await fetch(`${url}/rig${path}`, {
    method,
    headers: body && { 'content-type': 'application/json' },
    body: body && JSON.stringify(body),
  });
  const text = await response.text();
  if (!response.ok) throw new Error(`the rig answered ${response.status} to ${method} ${path}: ${text}`);
  return text ? JSON.parse(text) : undefined;
}

/** What one case has: clients of the proxy and of each gateway, a lock of its own, and the rig. */
export class Case {
  #clients = [];

  constructor(rigUrl, urls, id) {
    this.rigUrl = rigUrl;
    this.urls = urls;
    this.lock = `${id.toLowerCase()}:${Math.random().toString(36).slice(2)}`;
    this.locks = this.client();
    this.a = this.client('a');
    this.b = this.client('b');
  }

  client(at = 'proxy', options = {}) {
    const client = new Latchgate(this.urls[at] ?? at, options);
    this.#clients.push(client);
    return client;
  }

  rig(path, body, method) {
    return rig(this.rigUrl, path, body, method);
  }

  /** The next requests for the lock of this case meet a fault. */
  fault(kind, count, rest = {}) {
    return this.rig('/fault', { kind, count, path: `/locks/${this.lock}`, ...rest });
  }

  /** The requests for a lock that came to the proxy. */
  async log(method, path = `/locks/${this.lock}`) {
    const entries = await this.rig('/log');
    return entries.filter((entry) => entry.path.startsWith(path) && (!method || entry.method === method));
  }

  state(name = this.lock) {
    return this.b.inspect(name);
  }

  async free(ms = 1_000, name = this.lock) {
    await until(ms, async () => (await this.state(name)).state === 'free', `${name} is free`);
  }

  async queued(count, name = this.lock) {
    await until(5_000, async () => (await this.state(name)).waiterCount === count, `${count} wait for ${name}`);
  }

  skip(reason) {
    throw new Skipped(reason);
  }

  async reset() {
    await this.rig('/reset', undefined, 'POST');
  }

  async end() {
    await this.rig('/fault', undefined, 'DELETE');
    await Promise.all(this.#clients.map((client) => client.close()));
  }
}
