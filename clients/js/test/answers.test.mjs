// Answers that no rig gives on demand: a gateway that is a function.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { Latchgate, LatchgateError, LeaseLost, OutcomeUnknown } from '../src/index.js';

const json = (status, body) => new Response(JSON.stringify(body), { status, headers: { 'content-type': 'application/json' } });
const problem = (status, code, rest) => json(status, { status, code, title: code, detail: code, ...rest });
const lease = (rest) =>
  json(201, { name: 'x', token: 'secret-of-the-lease-42', fencing_token: 7, mode: 'exclusive', slot: null, ttl_ms: 30_000, expires_in_ms: 30_000, renew_after_ms: 10_000, hold_expires_in_ms: null, owner: null, metadata: {}, waited_ms: 0, ...rest });
const group = () =>
  json(201, { leases: [{ name: 'x', fencing_token: 1, expires_in_ms: 30_000 }, { name: 'y', fencing_token: 2, expires_in_ms: 30_000 }], token: 'secret-of-the-lease-42', ttl_ms: 30_000, expires_in_ms: 30_000, renew_after_ms: 10_000 });
const results = (...codes) => json(200, { results: codes.map((code, i) => ({ name: 'xy'[i], code, expires_in_ms: 9_000 })), expires_in_ms: 9_000, renew_after_ms: 3_000 });
const broken = () => {
  throw Object.assign(new TypeError('fetch failed'), { cause: Object.assign(new Error('other side closed'), { code: 'UND_ERR_SOCKET' }) });
};
const late = (ms, answer) => () => new Promise((resolve) => setTimeout(() => resolve(answer()), ms));

/** A client whose gateway gives these answers, one after the other, and what it was asked. */
function gateway(...answers) {
  const asked = [];
  const fetch = async (url, init) => {
    asked.push({ method: init.method, path: url.replace('http://gateway', ''), key: init.headers['idempotency-key'], body: init.body && JSON.parse(init.body), redirect: init.redirect });
    const answer = answers.shift() ?? (() => new Response(null, { status: 204 }));
    return answer();
  };
  return { locks: new Latchgate('http://gateway', { fetch }), asked };
}

const keys = (asked) => new Set(asked.filter(({ method }) => method === 'POST').map(({ key }) => key)).size;

test('superseded by a late copy of its own it asks again under the same key', async () => {
  const { locks, asked } = gateway(broken, () => problem(409, 'superseded'), lease);
  await locks.acquire('x');
  assert.deepEqual([asked.length, keys(asked)], [3, 1]);
});

test('superseded under a key of the caller it gives up', async () => {
  const { locks, asked } = gateway(() => problem(409, 'superseded'));
  const error = await locks.acquire('x', { idempotencyKey: 'k'.repeat(30) }).catch((it) => it);
  assert.deepEqual([error.code, asked.length], ['superseded', 1]);
});

test('a lease whose answer was lost and that is over is asked for under a new key', async () => {
  const { locks, asked } = gateway(broken, () => problem(409, 'idempotency-expired'), lease);
  await locks.acquire('x');
  assert.deepEqual([asked.length, keys(asked)], [3, 2]);
});

test('a lease whose answer took long is renewed first', async () => {
  const short = () => lease({ ttl_ms: 1_000, expires_in_ms: 1_000 });
  const { locks, asked } = gateway(late(200, short), () => json(200, { name: 'x', ttl_ms: 1_000, expires_in_ms: 1_000, renew_after_ms: 333 }));
  const it = await locks.acquire('x', { renew: false });
  assert(it.expiresInMs > 900, `${it.expiresInMs}`);
  assert.deepEqual(asked.map(({ method }) => method), ['POST', 'PUT']);
});

test('if that one is lost, the acquire begins anew', async () => {
  const short = () => lease({ ttl_ms: 1_000, expires_in_ms: 1_000 });
  const { locks, asked } = gateway(late(200, short), () => problem(410, 'lease-lost', { held: false }), lease);
  const it = await locks.acquire('x');
  assert.deepEqual([it.signal.aborted, keys(asked)], [false, 2]);
  await it.release();
});

test('a wait that the gateway does not allow is shortened, and the first one is short', async () => {
  const refuse = () => problem(400, 'invalid-request', { errors: [{ field: 'wait_ms', reason: 'at most 6000' }] });
  const held = () => problem(423, 'locked', { holders: [] });
  const { locks, asked } = gateway(refuse, refuse, held, lease);
  await locks.acquire('x', { wait: '10m' });
  assert.deepEqual(asked.map(({ body }) => body.wait_ms), [10_000, 5_000, 2_500, 2_500]);
});

test('what is no answer of a gateway is repeated', async () => {
  const proxy = () => new Response('<h1>Bad Gateway</h1>', { status: 502 });
  const cut = () => new Response('{"name":"x","tok', { status: 201 });
  const { locks, asked } = gateway(proxy, cut, lease);
  await locks.acquire('x');
  assert.deepEqual([asked.length, keys(asked)], [3, 1]);
});

test('no redirect is followed', async () => {
  const { locks, asked } = gateway(() => new Response(null, { status: 307, headers: { location: 'http://elsewhere' } }));
  const error = await locks.acquire('x').catch((it) => it);
  assert.deepEqual([error instanceof LatchgateError, error.status, asked.length, asked[0].redirect], [true, 307, 1, 'manual']);
});

test('a bug of the gateway is not repeated', async () => {
  const { locks, asked } = gateway(() => problem(500, 'internal'));
  const error = await locks.acquire('x').catch((it) => it);
  assert.deepEqual([error.code, asked.length], ['internal', 1]);
});

test('an acquire that ends without knowing takes back what may have been granted', async () => {
  const { locks, asked } = gateway(broken, () => problem(403, 'forbidden'), lease);
  await assert.rejects(locks.acquire('x', { wait: '5s' }), { code: 'forbidden' });
  await new Promise((resolve) => setTimeout(resolve, 100));
  assert.deepEqual(asked.map(({ method, body }) => [method, body?.wait_ms > 0]), [['POST', true], ['POST', true], ['POST', false], ['DELETE', false]]);
  assert.equal(keys(asked), 1);
});

test('one lost lock of a group ends the lease, and the others are released', async () => {
  const { locks, asked } = gateway(group, () => results(null, 'lease-lost'));
  const it = await locks.acquire(['x', 'y']);
  const error = await it.renew().catch((failure) => failure);
  assert.deepEqual([error instanceof LeaseLost, error.why, error.problem.name], [true, 'lost', 'y']);
  assert(it.signal.reason === error);
  assert.deepEqual(asked.map(({ method, path }) => `${method} ${path}`), ['POST /locks', 'PUT /locks?names=x,y', 'DELETE /locks?names=x,y']);
});

test('a group of which one renewal is not known is renewed again', async () => {
  const { locks, asked } = gateway(group, () => results(null, 'outcome-unknown'), () => results(null, null));
  const it = await locks.acquire(['x', 'y']);
  await it.renew();
  assert.equal(asked.length, 3);
  assert(it.expiresInMs < 9_000);
  await it.release();
});

test('the repeated release of a group is no loss', async () => {
  const { locks } = gateway(group, broken, () => results('lease-lost', null));
  const it = await locks.acquire(['x', 'y']);
  await it.release();
});

test('the repeated release of a group of which nothing is left is not known', async () => {
  const { locks } = gateway(group, broken, () => problem(410, 'lease-lost'));
  const it = await locks.acquire(['x', 'y']);
  await assert.rejects(it.release(), OutcomeUnknown);
});

test('a release of a lease that the gateway does not know says so', async () => {
  const { locks } = gateway(lease, () => problem(410, 'lease-lost', { held: true }));
  const it = await locks.acquire('x');
  await assert.rejects(it.release(), { name: 'LeaseLost', why: 'lost' });
});

test('a break whose answer is lost is not repeated', async () => {
  const { locks, asked } = gateway(broken);
  await assert.rejects(locks.break('x', { reason: 'test' }), OutcomeUnknown);
  assert.equal(asked.length, 1);
});

test('the key goes to the host of the url and nowhere else', async () => {
  let asked;
  const fetch = async (url) => {
    asked = url;
    return lease();
  };
  await new Latchgate('http://gateway//tenant?a#b', { fetch, key: 'k' }).acquire('x');
  assert.equal(asked, 'http://gateway//tenant/locks/x');
  for (const url of ['gateway:7420', 'ftp://gateway', 'http://me:secret@gateway', '']) {
    assert.throws(() => new Latchgate(url), (error) => error instanceof TypeError && !error.message.includes('secret'), url);
  }
});

test('a renewal whose answer is none ends the lease', async () => {
  const { locks } = gateway(lease, () => json(200, { ok: true }));
  const it = await locks.acquire('x');
  await it.renew();
  assert.throws(() => it.check(), LeaseLost);
});

test('of a group that is lost whatever may be left is given back', async () => {
  const { locks, asked } = gateway(group, () => results('lease-lost', 'outcome-unknown'));
  const it = await locks.acquire(['x', 'y']);
  await assert.rejects(it.renew(), LeaseLost);
  await new Promise((resolve) => setTimeout(resolve, 20));
  assert.deepEqual(asked.map(({ method }) => method), ['POST', 'PUT', 'DELETE']);
});

test('names are checked before anything is sent', async () => {
  const { locks, asked } = gateway();
  for (const name of ['', '.', '..', 'a/b', 'é', 'a'.repeat(201), undefined, 7, [], ['a', '..']]) {
    await assert.rejects(locks.acquire(name), TypeError, String(name));
  }
  assert.equal(asked.length, 0);
});

test('a request to release the lock is told, and shortens the lease', async () => {
  const told = [];
  const renewed = () => json(200, { name: 'x', ttl_ms: 30_000, expires_in_ms: 30_000, renew_after_ms: 10_000, release_requested: { by: null, reason: 'r', within_ms: 20_000 } });
  const { locks } = gateway(lease, renewed);
  const it = await locks.acquire('x', { onReleaseRequested: (request) => told.push(request) });
  await it.renew();
  assert.deepEqual(await it.releaseRequested, { name: 'x', by: undefined, reason: 'r', withinMs: 20_000 });
  assert(it.expiresInMs < 20_000);
  assert.equal(told.length, 1);
  await it.release();
});
