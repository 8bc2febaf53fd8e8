// A client that exchanges ID tokens for keys, at a gateway that is a function.

import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test as nodeTest } from 'node:test';
import { inspect } from 'node:util';

import { idTokenFetch } from '../src/id-token.js';
import { GatewayUnreachable, Latchgate, LatchgateError, LeaseLost, OutcomeUnknown } from '../src/index.js';
import { until } from './rig.mjs';
import { fails, hangs, json, lease, problem, renewed } from './scripted.mjs';

const test = (name, run) => nodeTest(name, { timeout: 60_000 }, run);
const TOKEN = 'eyJhbGciOiJSUzI1NiJ9.dGhlIHNlY3JldA.c2lnbmF0dXJl';
const HOUR = 3_600_000;
const free = () => json(200, { name: 'x', state: 'free', holders: [] });
const unauthorized = () => problem(401, 'unauthorized');
const key = (number, expires_in_ms = HOUR) => json(201, { key: `lgx_${number}`, expires_in_ms, name: 'ci' });

/**
 * A client whose gateway answers the exchange with this number by `exchange`, and a request with this key by `other`.
 * `tokens` are the tokens that were sent, `keys` the keys of the other requests.
 */
function rig(exchange, other = free, options = { token: () => TOKEN }) {
  const [tokens, keys, asked] = [[], [], []];
  const fetch = async (url, init) => {
    asked.push({ url, ...init });
    if (url === 'http://gateway/base/session/token') {
      tokens.push(JSON.parse(init.body).id_token);
      return exchange(tokens.length, init);
    }
    keys.push(init.headers.authorization);
    return other(init.headers.authorization, init);
  };
  const url = 'http://gateway/base/';
  return { locks: new Latchgate(url, { fetch: idTokenFetch(url, { fetch, ...options }), warn: () => {} }), tokens, keys, asked };
}

test('one exchange serves all requests, and nothing shows its secrets', async () => {
  const seen = [];
  const { locks, tokens, keys, asked } = rig((number) => key(number), free, { token: async () => `${TOKEN}\n`, keyName: 'ci', onKey: (it) => seen.push(it) });
  await Promise.all([locks.inspect('x'), locks.inspect('x')]);
  await locks.inspect('x');
  assert.deepEqual(tokens, [TOKEN]);
  assert.deepEqual(keys, Array(3).fill('Bearer lgx_1'));
  assert.deepEqual(seen, ['lgx_1']);
  assert.equal(JSON.parse(asked[0].body).name, 'ci');
  assert.deepEqual([asked[0].headers.authorization, asked[0].redirect], [undefined, 'manual']);
  assert.doesNotMatch(inspect(locks, { depth: 9, showHidden: true }), /lgx_|eyJ/);
});

test('a key that is refused is exchanged again, and the request is sent again', async () => {
  const revoked = (authorization) => (authorization === 'Bearer lgx_1' ? unauthorized() : lease());
  const { locks, tokens, keys } = rig((number) => key(number), revoked);
  const held = await locks.acquire('x', { renew: false });
  assert.deepEqual([tokens.length, keys], [2, ['Bearer lgx_1', 'Bearer lgx_2']]);
  assert.equal(held.fencingToken, 7);
});

test('two requests whose key is refused exchange once', async () => {
  const { locks, tokens } = rig((number) => key(number), (it) => (it === 'Bearer lgx_1' ? unauthorized() : free()));
  await Promise.all([locks.inspect('x'), locks.inspect('x')]);
  assert.equal(tokens.length, 2);
});

test('a key that the gateway refuses at once is not exchanged without an end', async () => {
  const { locks, tokens } = rig((number) => key(number), unauthorized);
  const error = await locks.inspect('x').catch((it) => it);
  assert.deepEqual([error.status, error.code, tokens.length], [401, 'unauthorized', 2]);
});

test('a key that is about to end is exchanged while requests go on', async () => {
  let answer;
  const second = new Promise((resolve) => (answer = resolve));
  const { locks, tokens, keys } = rig((number) => (number === 1 ? key(1, 1) : second.then(() => key(2))));
  await locks.inspect('x');
  await new Promise((resolve) => setTimeout(resolve, 5));
  await locks.inspect('x');
  await locks.inspect('x');
  assert.deepEqual([tokens.length, keys], [2, Array(3).fill('Bearer lgx_1')]);
  answer();
  await until(20_000, async () => (await locks.inspect('x')) && keys.at(-1) === 'Bearer lgx_2', 'the new key is used');
  assert.equal(tokens.length, 2);
});

test('a lease is renewed and released with the last key if there is no other token', async () => {
  let renewals = 0;
  const gateway = (_, { method }) => {
    if (method === 'POST') return lease({ ttl_ms: 60, expires_in_ms: 60_000, renew_after_ms: 20 });
    if (method === 'PUT') renewals += 1;
    return method === 'PUT' ? renewed({ renew_after_ms: 20 })() : new Response(null, { status: 204 });
  };
  const expired = () => problem(401, 'unauthorized', { detail: 'The ID token is refused (time): it has expired.' });
  const { locks, tokens, keys } = rig((number) => (number === 1 ? key(1, 1) : expired()), gateway);
  const held = await locks.acquire('x');
  await until(20_000, () => renewals >= 3, 'three renewals');
  await held.release();
  assert.deepEqual([new Set(keys).size, keys[0]], [1, 'Bearer lgx_1']);
  // A refused token is not sent again.
  assert.equal(tokens.length, 2);
});

test('a release waits for no exchange: a page that is closed sends it at once', async () => {
  const { locks, tokens, asked } = rig((number) => key(number, 1), (_, { method }) => (method === 'POST' ? lease() : new Response(null, { status: 204 })));
  const held = await locks.acquire('x', { renew: false });
  await new Promise((resolve) => setTimeout(resolve, 5));
  const released = held.release();
  await Promise.resolve();
  assert.equal(asked.at(-1).method, 'DELETE');
  await released;
  assert.equal(tokens.length, 1);
});

test('a refused token is reported with its class and is not sent again, and a new one at once', async () => {
  const detail = 'The ID token is refused (no key matches): it is valid.';
  let token = 'old';
  const { locks, tokens } = rig((number) => (number === 1 ? problem(401, 'unauthorized', { detail }) : key(number)), free, { token: () => token });
  for (let i = 0; i < 2; i += 1) {
    const error = await locks.acquire('x', { wait: '1m' }).catch((it) => it);
    assert.deepEqual([error.name, error.status, error.message], ['LatchgateError', 401, detail]);
  }
  assert.deepEqual(tokens, ['old']);
  token = 'new';
  await locks.inspect('x');
  assert.deepEqual(tokens, ['old', 'new']);
});

test('an issuer or a proxy that is away is asked again and leaves nothing in doubt', async () => {
  const answers = [
    () => problem(503, 'issuer-unavailable'),
    () => new Response('<html>', { status: 502 }),
    fails('UND_ERR_SOCKET', 'other side closed'),
    fails('ECONNREFUSED', 'connect ECONNREFUSED'),
    () => problem(500, 'internal'),
    () => key(5),
  ];
  const { locks, tokens } = rig((number) => answers[number - 1](), () => problem(410, 'lease-lost'));
  const error = await locks.acquire('x', { wait: '1m' }).catch((it) => it);
  assert(error instanceof LeaseLost, error);
  assert.equal(tokens.length, answers.length);
});

test('without any answer it says so, and that nothing has happened', async () => {
  const refused = rig(fails('ECONNREFUSED', 'connect ECONNREFUSED'));
  const unreachable = await refused.locks.acquire('x', { wait: 50 }).catch((it) => it);
  assert(unreachable instanceof GatewayUnreachable, unreachable);
  const silent = rig((_, init) => hangs(init));
  const controller = new AbortController();
  const acquiring = silent.locks.acquire('x', { wait: '1m', signal: controller.signal });
  await until(20_000, () => silent.tokens.length === 1, 'the exchange');
  controller.abort(new Error('enough'));
  assert.equal((await acquiring.catch((it) => it)).message, 'enough');
  assert.equal(silent.keys.length, 0);
});

test('an exchange that takes longer than a request leaves nothing in doubt', async () => {
  const { locks, tokens } = rig((_, init) => hangs(init));
  const error = await locks.acquire('x', { wait: 10 }).catch((it) => it);
  assert(error instanceof LatchgateError && !(error instanceof OutcomeUnknown), error);
  assert.deepEqual([error.status, error.code, tokens.length], [503, 'not-exchanged', 1]);
});

test('a certificate that is refused is reported at once', async () => {
  const { locks, tokens } = rig(fails('DEPTH_ZERO_SELF_SIGNED_CERT', 'self-signed certificate'));
  const error = await locks.acquire('x', { wait: '1m' }).catch((it) => it);
  assert(error instanceof GatewayUnreachable, error);
  assert.equal(tokens.length, 1);
});

test('a source that fails says why; one that fails for now is asked again', async () => {
  const broken = rig(() => key(1), free, { token: () => Promise.reject(new Error('no permission')) });
  const error = await broken.locks.acquire('x', { wait: '1m' }).catch((it) => it);
  assert.deepEqual([error.status, error.code, error.message, broken.asked.length], [401, 'no-id-token', 'no permission', 0]);
  let calls = 0;
  const token = () => {
    calls += 1;
    if (calls === 1) throw Object.assign(new Error('away'), { isTemporary: true });
    return TOKEN;
  };
  const again = rig(() => key(1), lease, { token });
  await again.locks.acquire('x', { renew: false });
  assert.deepEqual(again.tokens, [TOKEN]);
});

test('the token comes from the environment, and its file is read for each exchange', async (t) => {
  const home = mkdtempSync(join(tmpdir(), 'latchgate-id-token-'));
  t.after(() => {
    rmSync(home, { recursive: true });
    delete process.env.LATCHGATE_ID_TOKEN;
    delete process.env.LATCHGATE_ID_TOKEN_FILE;
  });
  const file = join(home, 'token');
  process.env.LATCHGATE_ID_TOKEN_FILE = file;
  const revoked = new Set();
  const { locks, tokens } = rig((number) => key(number), (it) => (revoked.has(it) ? unauthorized() : free()), {});
  const missing = await locks.inspect('x').catch((it) => it);
  assert.match(missing.message, /cannot read the ID token from .*: ENOENT/);
  writeFileSync(file, 'first\n');
  await locks.inspect('x');
  writeFileSync(file, 'second\n');
  revoked.add('Bearer lgx_1');
  await locks.inspect('x');
  assert.deepEqual(tokens, ['first', 'second']);

  process.env.LATCHGATE_ID_TOKEN = TOKEN;
  const detail = 'The ID token is refused (time): it has expired.';
  const expired = rig(() => problem(401, 'unauthorized', { detail }), free, {});
  const error = await expired.locks.inspect('x').catch((it) => it);
  assert.deepEqual(expired.tokens, [TOKEN]);
  assert(error.message.startsWith(detail) && error.message.includes('LATCHGATE_ID_TOKEN_FILE'), error.message);
});

test('a bad URL is refused without being shown', () => {
  assert.throws(() => idTokenFetch('s3cret'), (error) => error instanceof TypeError && !error.message.includes('s3cret'));
});
