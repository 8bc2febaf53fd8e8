// A gateway that is a function: it gives the answers that a test names, one after the other.

import { Latchgate } from '../src/index.js';
import { until } from './rig.mjs';

export const json = (status, body) => new Response(JSON.stringify(body), { status, headers: { 'content-type': 'application/json' } });
export const problem = (status, code, rest) => json(status, { status, code, title: code, detail: code, ...rest });
export const lease = (rest) =>
  json(201, { name: 'x', token: 'secret-of-the-lease-42', fencing_token: 7, mode: 'exclusive', slot: null, ttl_ms: 30_000, expires_in_ms: 30_000, renew_after_ms: 10_000, hold_expires_in_ms: null, owner: null, metadata: {}, waited_ms: 0, ...rest });
export const group = () =>
  json(201, { leases: [{ name: 'x', fencing_token: 1, expires_in_ms: 30_000 }, { name: 'y', fencing_token: 2, expires_in_ms: 30_000 }], token: 'secret-of-the-lease-42', ttl_ms: 30_000, expires_in_ms: 30_000, renew_after_ms: 10_000 });
export const results = (...codes) => json(200, { results: codes.map((code, i) => ({ name: 'xy'[i], code, expires_in_ms: 9_000 })), expires_in_ms: 9_000, renew_after_ms: 3_000 });
/** As Node tells of a network that fails. */
export const fails = (code, message, error = new Error(message)) => () => {
  throw Object.assign(new TypeError('fetch failed'), { cause: Object.assign(error, { code }) });
};
export const broken = fails('UND_ERR_SOCKET', 'other side closed');
export const renewed = (rest) => () => json(200, { name: 'x', ttl_ms: 30_000, expires_in_ms: 30_000, renew_after_ms: 10_000, ...rest });
export const hangs = (init) => new Promise((_, reject) => init.signal.addEventListener('abort', () => reject(init.signal.reason)));
export const late = (ms, answer) => () => new Promise((resolve) => setTimeout(() => resolve(answer()), ms));

let ports = 1_000;

/** A client whose gateway, of its own, gives these answers, one after the other, and what it was asked. */
export function gateway(...answers) {
  const asked = [];
  const told = [];
  const origin = `http://gateway:${(ports += 1)}`;
  const fetch = async (url, init) => {
    asked.push({ at: performance.now(), method: init.method, path: url.replace(origin, ''), key: init.headers['idempotency-key'], token: init.headers['lock-token'], fence: init.headers['fencing-token'], body: init.body && JSON.parse(init.body), redirect: init.redirect });
    const answer = answers.shift() ?? (() => new Response(null, { status: 204 }));
    return answer(init);
  };
  return { locks: new Latchgate(origin, { fetch, warn: (text) => told.push(text) }), asked, told };
}

export const methods = (asked) => asked.map(({ method }) => method).join(' ');

/** Waits until so much was asked, and for a moment longer: more would be too much. */
export async function afterwards(asked, count) {
  await until(20_000, () => asked.length >= count, `${count} requests`);
  await new Promise((resolve) => setTimeout(resolve, 50));
}

export const keys = (asked) => new Set(asked.filter(({ method }) => method === 'POST').map(({ key }) => key)).size;
