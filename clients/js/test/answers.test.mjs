// Answers that no rig gives on demand: a gateway that is a function.

import assert from 'node:assert/strict';
import { test as nodeTest } from 'node:test';

import { GatewayUnreachable, Latchgate, LatchgateError, LeaseLost, LockHeld, OutcomeUnknown } from '../src/index.js';
import { aborted, until } from './rig.mjs';
import { afterwards, broken, fails, gateway, group, hangs, json, keys, late, lease, methods, problem, renewed, results } from './scripted.mjs';

const test = (name, run) => nodeTest(name, { timeout: 60_000 }, run);

/** Sets the wall clock ahead of the monotonic one, as a machine that slept finds it. */
async function withSleep(ms, run) {
  const real = Date.now;
  Date.now = () => real() + ms;
  try {
    await run();
  } finally {
    Date.now = real;
  }
}

test('superseded by a late copy of its own it asks again under the same key', async () => {
  const { locks, asked } = gateway(broken, () => problem(409, 'request-replaced'), lease);
  await locks.acquire('x');
  assert.deepEqual([asked.length, keys(asked)], [3, 1]);
});

test('superseded under a key of the caller it gives up', async () => {
  const { locks, asked } = gateway(() => problem(409, 'request-replaced'));
  const error = await locks.acquire('x', { idempotencyKey: 'k'.repeat(30) }).catch((it) => it);
  assert.deepEqual([error.code, asked.length], ['request-replaced', 1]);
});

test('taken out of the queue by a newer waiter it gives up', async () => {
  const { locks, asked } = gateway(() => problem(409, 'newer-waiter'));
  const error = await locks.acquire('x', { wait: '1m', supersedes: 'deploy' }).catch((it) => it);
  assert.deepEqual([error.code, asked.length], ['newer-waiter', 1]);
});

test('outdated by a later copy it gives up, and says by which order', async () => {
  const orderGranted = { at: '2026-12-04T18:00:00Z', by: null, owner: 'run 5' };
  const outdated = () => problem(409, 'outdated-order', { order: 4, granted_order: 5, order_granted: orderGranted });
  const { locks, asked } = gateway(broken, outdated);
  const error = await locks.acquire('x', { wait: '1m', order: 4, rollback: 'why' }).catch((it) => it);
  assert.deepEqual([error.name, error.code, asked.length], ['LatchgateError', 'outdated-order', 2]);
  assert.deepEqual([error.problem.grantedOrder, error.problem.orderGranted], [5, orderGranted]);
  assert.deepEqual([asked[0].body.order, asked[0].body.rollback], [4, 'why']);
});

test('an order of a lock counts before that of all', async () => {
  const { locks, asked } = gateway(lease, group);
  await locks.acquire({ name: 'x', order: 0 }, { order: 9 });
  await locks.acquire(['x', { name: 'y', order: 3 }], { order: 9 });
  assert.deepEqual(asked.map(({ body }) => [body.order, body.names]), [[0, undefined], [9, ['x', { name: 'y', order: 3 }]]]);
});

test('what a gateway refuses by its declarations says nothing about an earlier copy', async () => {
  const different = () => problem(409, 'declared-differently');
  const refused = gateway(different);
  const error = await refused.locks.acquire('x', { limit: 3 }).catch((it) => it);
  assert.deepEqual([error.code, refused.asked.length], ['declared-differently', 1]);
  const unanswered = gateway(broken, different);
  const doubt = await unanswered.locks.acquire('x', { limit: 3 }).catch((it) => it);
  // The third request takes back what the first may have been granted.
  assert.deepEqual([doubt.name, unanswered.asked.length], ['OutcomeUnknown', 3]);
});

test('a reservation is sent and shown', async () => {
  const reservation = { until: '2026-12-04T18:00:00Z', reason: 'load test', reserved_by: null };
  const lock = { name: 'x', state: 'held', holders: [{ fencing_token: 1, reservation }], holder_count: 1, waiters: [], waiter_count: 0 };
  const { locks, asked } = gateway(lease, () => json(200, lock));
  const reserve = { until: reservation.until, reason: 'load test' };
  await locks.acquire('x', { reserve });
  assert.deepEqual(asked[0].body.reserve, reserve);
  const [holder] = (await locks.inspect('x')).holders;
  assert.equal(holder.reservation.reservedBy, null);
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
  const redirect = (location) => () => new Response(null, { status: 307, headers: { location } });
  const { locks, asked } = gateway(redirect('https://u:s3cret@elsewhere:1/locks/team@prod?key=s3cret'), redirect('/login'));
  const error = await locks.acquire('x').catch((it) => it);
  assert.deepEqual([error instanceof LatchgateError, error.status, asked.length, asked[0].redirect], [true, 307, 1, 'manual']);
  assert.equal(error.message, 'the answer (status 307) is not understood: a redirect to https://elsewhere:1/locks/team@prod, not followed');
  assert.match((await locks.acquire('x').catch((it) => it)).message, / to \/login, not/);
});

test('a bug of the gateway is not repeated', async () => {
  const { locks, asked } = gateway(() => problem(500, 'internal'), lease);
  const error = await locks.acquire('x', { wait: '5s' }).catch((it) => it);
  assert.equal(error.code, 'internal');
  // It may have left a lease or a place behind.
  await afterwards(asked, 3);
  assert.deepEqual([methods(asked), asked[1].body.wait_ms, keys(asked)], ['POST POST DELETE', undefined, 1]);
});

test('an acquire that ends without knowing takes back what may have been granted', async () => {
  const { locks, asked } = gateway(broken, () => problem(403, 'forbidden'), lease);
  await assert.rejects(locks.acquire('x', { wait: '5s' }), { code: 'outcome-unknown', status: 403 });
  await afterwards(asked, 4);
  assert.deepEqual(asked.map(({ method, body }) => [method, body?.wait_ms > 0]), [['POST', true], ['POST', true], ['POST', false], ['DELETE', false]]);
  assert.equal(keys(asked), 1);
});

test('each lock may have a mode and a limit of its own', async () => {
  const held = () => problem(423, 'locked');
  const sent = async (...acquire) => {
    const { locks, asked } = gateway(held);
    await assert.rejects(locks.acquire(...acquire), LockHeld);
    return [asked[0].path, asked[0].body];
  };
  const pool = { name: 'y', limit: 20 };
  assert.deepEqual(await sent(['x', pool]), ['/locks', { names: ['x', pool] }]);
  assert.deepEqual(await sent([pool, { name: 'z', mode: 'shared' }]), ['/locks', { names: [pool, { name: 'z', mode: 'shared' }] }]);
  assert.deepEqual(await sent(['x', 'y'], { limit: 2 }), ['/locks', { names: ['x', 'y'], limit: 2 }]);
  for (const one of [pool, [pool]]) assert.deepEqual(await sent(one), ['/locks/y', { limit: 20 }]);
  assert.deepEqual(await sent('x', { mode: 'shared' }), ['/locks/x', { mode: 'shared' }]);
  const { locks, asked } = gateway(held);
  for (const options of [{ mode: 'exclusive' }, { limit: 2 }]) {
    await assert.rejects(locks.acquire(['x', pool], options), { name: 'TypeError', message: /expected for each lock/ });
  }
  await assert.rejects(locks.acquire(['x', { limit: 2 }]), TypeError);
  // In JSON these would be missing, and nothing would be compared.
  for (const number of [NaN, Infinity, -1, 0.5]) {
    for (const [names, options] of [['x', { order: number }], [['x', { name: 'y', limit: number }]]]) {
      await assert.rejects(locks.acquire(names, options), { name: 'TypeError', message: /unexpected/ });
    }
  }
  for (const [field, value] of [['ttl', '1h'], ['owner', 'me'], ['wait_ms', 5], ['limits', 2], ['mode ', undefined]]) {
    const wrong = { ...pool, [field]: value };
    for (const names of [wrong, [wrong], ['x', wrong]]) {
      await assert.rejects(locks.acquire(names), { name: 'TypeError', message: `${field}: unexpected` });
    }
  }
  await assert.rejects(locks.acquire(function work() {}), TypeError);
  assert.equal(asked.length, 0);
});

test('one lost lock of a group ends the lease, and the others are released', async () => {
  const { locks, asked } = gateway(group, () => results(null, 'lease-lost'));
  const it = await locks.acquire(['x', 'y']);
  const error = await it.renew().catch((failure) => failure);
  assert.deepEqual([error instanceof LeaseLost, error.why, error.message, error.problem.name], [true, 'lost', 'lease-lost', 'y']);
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

test('a renewal whose answer is none has not made the lease longer', async () => {
  for (const bad of [{ ok: true }, { name: 'x' }, { name: 'x', expires_in_ms: '9000', renew_after_ms: 3_000 }, { name: 'y', expires_in_ms: 60_000, renew_after_ms: 3_000 }, []]) {
    const { locks } = gateway(lease, () => json(200, bad));
    const it = await locks.acquire('x');
    await assert.rejects(it.renew('1h'), { name: 'OutcomeUnknown', code: 'unknown-answer' }, JSON.stringify(bad));
    it.check();
    assert(it.expiresInMs > 0 && it.expiresInMs < 30_000, `${it.expiresInMs}`);
    await it.release();
  }
});

test('an answer without end is not read, and the request is repeated, whatever its status', async () => {
  for (const status of [201, 403, 500]) await floods(status);
});

async function floods(status) {
  let sent = 0;
  let cancelled = false;
  const flood = new ReadableStream({
    pull: (controller) => {
      controller.enqueue(new Uint8Array(2 ** 20).fill(32));
      sent += 1;
    },
    cancel: () => {
      cancelled = true;
    },
  });
  const { locks, asked } = gateway(() => new Response(flood, { status }), lease);
  await (await locks.acquire('x')).release();
  assert.deepEqual([methods(asked), keys(asked), cancelled, sent < 30], ['POST POST DELETE', 1, true, true], `${status}`);
}

test('the answer of a `fetch` of the caller has a text, if not a stream', async () => {
  const { locks, asked } = gateway(() => ({ status: 201, ok: true, headers: new Headers(), text: () => lease().text() }));
  await (await locks.acquire('x')).release();
  assert.equal(methods(asked), 'POST DELETE');
});

test('no lease is believed to last longer than its TTL', async () => {
  const longer = { expires_in_ms: 2 ** 53 - 1 };
  const { locks } = gateway(() => lease(longer), renewed(longer));
  const it = await locks.acquire('x');
  assert(it.expiresInMs <= 30_000, `${it.expiresInMs}`);
  await it.renew();
  assert(it.expiresInMs <= 30_000, `${it.expiresInMs}`);
  await it.release();
});

test('a pause that makes no sense is none', async () => {
  for (const pause of ['soon', -5_000, {}]) {
    const { locks, asked } = gateway(...Array.from({ length: 999 }, () => () => problem(503, 'overloaded', { retry_after_ms: pause })));
    await assert.rejects(locks.acquire('x', { wait: 500 }), { code: 'overloaded' });
    assert(asked.length < 30, `${asked.length}`);
  }
});

test('an acquire whose answer is none says so, and gives back what it can', async () => {
  const good = { name: 'x', token: 'secret-of-the-lease-42', fencing_token: 7, ttl_ms: 30_000, expires_in_ms: 30_000, renew_after_ms: 10_000 };
  const bad = [{ token: 1 }, { token: '' }, { token: null }, { fencing_token: '7' }, { fencing_token: null }, { ttl_ms: null }, { ttl_ms: '30s' }, { ttl_ms: 2 ** 53 }, { expires_in_ms: 1e300 }, { expires_in_ms: -1 }, { renew_after_ms: 0.5 }, { slot: 1e300 }, { hold_expires_in_ms: 2 ** 53 }, { release_requested: { reason: 'r', within_ms: 1e300 } }, { expires_in_ms: null }, { renew_after_ms: {} }, { hold_expires_in_ms: 'never' }, { release_requested: { reason: 'r' } }, { release_requested: true }, { name: 'y' }];
  for (const answer of [{}, [], 'text', 7, ...bad.map((rest) => ({ ...good, ...rest }))]) {
    // With the token, or by the key.
    const again = answer.token ? [] : [lease];
    const { locks, asked } = gateway(() => json(201, answer), ...again);
    const error = await locks.acquire('x').catch((it) => it);
    assert.deepEqual([error.name, error.code, error.status], ['OutcomeUnknown', 'unknown-answer', 201], JSON.stringify(answer));
    const count = 2 + again.length;
    await afterwards(asked, count);
    assert.deepEqual([asked.length, asked.at(-1).method, keys(asked)], [count, 'DELETE', 1], JSON.stringify(answer));
  }
});

test('a group of which one lock is not told of is no grant', async () => {
  const { locks, asked } = gateway(() => json(201, { leases: [{ name: 'x', fencing_token: 1 }], token: 'secret-of-the-lease-42', ttl_ms: 30_000, expires_in_ms: 30_000, renew_after_ms: 10_000 }));
  await assert.rejects(locks.acquire(['x', 'y']), { code: 'unknown-answer' });
  await afterwards(asked, 2);
  assert.equal(`${asked[1].method} ${asked[1].path}`, 'DELETE /locks?names=x,y');
});

test('a renewal with a shorter TTL counts when it is answered', async () => {
  const shorter = renewed({ ttl_ms: 10_000, expires_in_ms: 29_000, renew_after_ms: 3_333 });
  const { locks, asked } = gateway(lease, broken, () => problem(403, 'forbidden'), shorter, renewed());
  const it = await locks.acquire('x');
  await assert.rejects(it.renew('10s'), { code: 'forbidden' });
  assert.equal(asked.length, 3);
  assert(it.expiresInMs > 20_000, `${it.expiresInMs}`);
  await it.renew('10s');
  assert.equal(it.ttlMs, 10_000);
  assert(it.expiresInMs > 9_000 && it.expiresInMs <= 10_000, `${it.expiresInMs}`);
  await it.renew();
  assert(it.expiresInMs > 20_000, `${it.expiresInMs}`);
  await it.release();
});

test('one that was refused changes nothing', async () => {
  const { locks } = gateway(lease, () => problem(400, 'invalid-request'));
  const it = await locks.acquire('x');
  await assert.rejects(it.renew(10), { code: 'invalid-request' });
  it.check();
  assert(it.expiresInMs > 20_000, `${it.expiresInMs}`);
  await it.release();
});

test('a machine that slept without a network takes it that the lease was not renewed', async () => {
  const { locks, asked } = gateway(lease, broken, broken, renewed());
  const it = await locks.acquire('x');
  await withSleep(12_000, async () => {
    it.check();
    assert.equal(methods(asked), 'POST PUT');
    await afterwards(asked, 2);
    assert(it.expiresInMs < 18_000, `${it.expiresInMs}`);
    await until(20_000, () => asked.length === 4 && it.expiresInMs > 20_000, 'the renewal that is answered');
    it.check();
  });
  await it.release();
});

test('so does one that slept for longer than the lease', async () => {
  const { locks, asked } = gateway(lease, broken);
  const it = await locks.acquire('x');
  await withSleep(3_600_000, async () => {
    it.check();
    assert.equal((await aborted(it.signal)).why, 'expired');
    assert.equal(methods(asked.slice(0, 2)), 'POST PUT');
  });
});

test('a lease at its hold limit is asked for until an answer comes', async () => {
  const { locks, asked } = gateway(() => lease({ hold_expires_in_ms: 30_000 }), broken, broken, () => problem(410, 'lease-lost'));
  const it = await locks.acquire('x', { maxHold: '30s' });
  await withSleep(5_000, async () => {
    it.check();
    assert.equal((await aborted(it.signal)).why, 'lost');
    assert.equal(methods(asked), 'POST PUT PUT PUT');
  });
});

test('a lease that is not renewed is shorter by what the machine slept', async () => {
  const { locks, asked } = gateway(lease);
  const it = await locks.acquire('x', { renew: false });
  await withSleep(10_000, async () => {
    it.check();
    assert(it.expiresInMs < 20_000 && it.expiresInMs > 10_000, `${it.expiresInMs}`);
  });
  await withSleep(3_600_000, async () => {
    assert.throws(() => it.check(), { why: 'expired' });
  });
  await afterwards(asked, 2);
  assert.equal(methods(asked), 'POST DELETE');
});

test('a release that failed is sent again by the next one', async () => {
  const inTheBackground = () => problem(503, 'overloaded', { retry_after_ms: 100_000 });
  const { locks, asked } = gateway(lease, () => problem(500, 'internal'), inTheBackground);
  const it = await locks.acquire('x');
  await assert.rejects(it.release(), { code: 'internal' });
  await afterwards(asked, 3);
  await it.release();
  assert.equal(methods(asked), 'POST DELETE DELETE DELETE');
  await it.release();
  assert.equal(asked.length, 4);
});

test('a release that failed goes on in the background', async () => {
  const later = () => problem(503, 'overloaded', { retry_after_ms: 100_000 });
  const { locks, asked } = gateway(lease, later, broken, broken);
  const it = await locks.acquire('x');
  await assert.rejects(it.release(), LatchgateError);
  // Its timers keep no process alive, those of this do.
  await afterwards(asked, 5);
  assert.equal(methods(asked), 'POST DELETE DELETE DELETE DELETE');
});

test('a grant that comes with the abort is given back, also under a key of the caller', async () => {
  for (const idempotencyKey of [undefined, 'k'.repeat(30)]) {
    const controller = new AbortController();
    const reason = new Error('enough');
    const { locks, asked } = gateway(() => {
      const aborts = new TransformStream({ flush: () => controller.abort(reason) });
      return new Response(lease().body.pipeThrough(aborts), { status: 201 });
    });
    assert.equal(await locks.acquire('x', { idempotencyKey, signal: controller.signal }).catch((it) => it), reason);
    await afterwards(asked, 2);
    assert.deepEqual([methods(asked), asked[1].token], ['POST DELETE', 'secret-of-the-lease-42']);
  }
});

test('a place under a key of the caller is left to those who go on', async () => {
  const controller = new AbortController();
  const { locks, asked } = gateway(hangs);
  const waiting = locks.acquire('x', { idempotencyKey: 'k'.repeat(30), wait: '1m', signal: controller.signal });
  await afterwards(asked, 1);
  controller.abort();
  await assert.rejects(waiting, { name: 'AbortError' });
  await afterwards(asked, 1);
  assert.equal(asked.length, 1);
});

test('what was closed ends its acquires, and takes them back', async () => {
  const { locks, asked } = gateway(hangs, () => problem(423, 'locked', { holders: [] }), lease);
  const waiting = locks.acquire('x', { wait: Infinity }).catch((it) => it);
  await afterwards(asked, 1);
  await locks.close();
  const error = await waiting;
  assert.deepEqual([error instanceof LatchgateError, error.code, asked.length, asked[1].body.wait_ms, keys(asked)], [true, 'closed', 2, undefined, 1]);
  await (await locks.acquire('x')).release();
});

test('what no later copy does better is refused at once', async () => {
  const expired = fails('CERT_HAS_EXPIRED', 'certificate has expired');
  const untrusted = fails('UNABLE_TO_VERIFY_LEAF_SIGNATURE', 'unable to verify the first certificate');
  const altname = fails('ERR_TLS_CERT_ALTNAME_INVALID', "Hostname/IP does not match certificate's altnames");
  const deno = fails(undefined, 'error sending request for url (https://gateway/): client error (Connect): invalid peer certificate: UnknownIssuer');
  const bun = () => {
    throw Object.assign(new TypeError('self signed certificate'), { code: 'DEPTH_ZERO_SELF_SIGNED_CERT' });
  };
  for (const fault of [expired, untrusted, altname, deno, bun, fails(undefined, 'bad port')]) {
    const { locks, asked } = gateway(fault);
    await assert.rejects(locks.acquire('x', { wait: Infinity }), GatewayUnreachable);
    await afterwards(asked, 1);
    assert.equal(asked.length, 1);
  }
  const { locks: doubting } = gateway(broken, expired);
  await assert.rejects(doubting.acquire('x'), OutcomeUnknown);
  const mistakes = [
    () => new Headers({ a: '\u2603' }),
    () => new Headers({ a: 'b\nc' }),
    () => fetch('http://'),
    () => fetch('http://localhost:6666'),
    () => undefined.body,
    () => (undefined)(),
  ];
  for (const mistake of mistakes) {
    const { locks } = gateway(mistake, mistake);
    const error = await locks.acquire('x', { wait: Infinity }).catch((it) => it);
    assert(error instanceof TypeError || error instanceof GatewayUnreachable, error);
  }
  const { locks, asked } = gateway();
  await assert.rejects(locks.acquire('x', { wait: Infinity, metadata: { n: 1n } }), TypeError);
  await afterwards(asked, 0);
  assert.equal(asked.length, 0);
});

test('a network that fails is no mistake, whatever the host is called', async () => {
  const other = (message, code) => () => {
    throw Object.assign(new TypeError(message), code && { code });
  };
  const faults = [
    fails('ENOTFOUND', 'getaddrinfo ENOTFOUND cert.invalid'),
    // Bun
    other('getaddrinfo ENOTFOUND null.invalid', 'ENOTFOUND'),
    // Deno
    other('error sending request for url (http://null.invalid/locks/undefined): client error (Connect): tcp connect error'),
    other('error sending request for url (http://null.invalid/locks/undefined): connection closed before message completed'),
    // browsers
    other('Failed to fetch'),
    other('NetworkError when attempting to fetch resource.'),
    other('Load failed'),
  ];
  for (const fault of faults) {
    const { locks, asked } = gateway(fault, lease);
    await (await locks.acquire('x')).release();
    assert.equal(asked.length, 3);
  }
});

test('a route that is lost on an established connection leaves a doubt', async () => {
  const many = new AggregateError([new Error('connect EHOSTUNREACH 10.0.0.1:80'), new Error('connect ENETUNREACH ::1:80')], '');
  const faults = [
    [fails('EHOSTUNREACH', 'read EHOSTUNREACH'), OutcomeUnknown],
    [fails('ENETUNREACH', 'write ENETUNREACH'), OutcomeUnknown],
    [fails('EHOSTUNREACH', 'connect EHOSTUNREACH 10.0.0.1:80'), GatewayUnreachable],
    [fails('EHOSTUNREACH', '', many), GatewayUnreachable],
    [fails('ECONNREFUSED', ''), GatewayUnreachable],
  ];
  for (const [fault, Failure] of faults) {
    const { locks } = gateway(...Array.from({ length: 99 }, () => fault));
    await assert.rejects(locks.acquire('x', { wait: 50 }), Failure);
  }
});

test('a lock that is held says by whom, and until when and why it is reserved', async () => {
  const reservation = { until: '2026-12-04T18:00:00Z', reason: 'load test', reserved_by: null };
  const cases = [
    [{ holders: [{ owner: 'anna' }], holder_count: 1 }, 'x is held by anna'],
    [{ holders: [{ owner: null }, { owner: 'anna' }], holder_count: 3 }, 'x is held by somebody and 2 more'],
    [{ name: 'y', holders: [{ owner: 'anna' }] }, 'y is held by anna'],
    [{ holders: 7 }, 'x is held by somebody'],
    [{ holders: [{ owner: 'anna', reservation: { ...reservation, reserved_by: 'ops' } }] }, 'x is reserved by ops until 2026-12-04T18:00:00Z because load test'],
    [{ holders: [{ owner: null, reservation }] }, 'x is reserved until 2026-12-04T18:00:00Z because load test'],
    [{ holders: [], holder_count: 0, resting: [{ fencing_token: 7, slot: null, available_in_ms: 4000 }], available_in_ms: 4000 }, 'x rests for another 4000 ms'],
  ];
  for (const [rest, message] of cases) {
    const { locks } = gateway(() => problem(423, 'locked', rest));
    assert.equal((await locks.acquire('x').catch((it) => it)).message, message);
  }
});

test('a lease that no caller had is released as unused, if it has a minimum hold', async () => {
  const minHold = '1m';
  const cases = [
    [{ minHold }, '?unused=true'],
    [{ minHold, wait: '5s' }, '?unused=true'],
    [{ minHold, names: ['x', 'y'] }, '&unused=true'],
    [{ minHold: 0 }, ''],
    [{}, ''],
    // Another program may have used the lease of a caller's key.
    [{ minHold, idempotencyKey: 'k'.repeat(30) }, ''],
  ];
  for (const [{ names = 'x', ...options }, unused] of cases) {
    const [grant, path] = names === 'x' ? [lease, '/locks/x'] : [group, '/locks?names=x,y'];
    // A caller that aborts while the answer with the lease is on its way.
    const controller = new AbortController();
    const aborts = () => {
      controller.abort();
      return grant();
    };
    const aborted = gateway(aborts);
    await assert.rejects(aborted.locks.acquire(names, { ...options, signal: controller.signal }), { name: 'AbortError' });
    await afterwards(aborted.asked, 2);
    assert.deepEqual([aborted.asked[1].method, aborted.asked[1].path], ['DELETE', path + unused], JSON.stringify(options));
    // A holder has used the lease.
    const holder = gateway(grant);
    await (await holder.locks.acquire(names, options)).release();
    assert.deepEqual([holder.asked[1].method, holder.asked[1].path], ['DELETE', path], JSON.stringify(options));
  }
  // A lease whose answer was lost, and which the withdrawal finds.
  const { locks, asked } = gateway(broken, () => problem(403, 'forbidden'), lease);
  await assert.rejects(locks.acquire('x', { minHold }), OutcomeUnknown);
  await afterwards(asked, 4);
  assert.deepEqual([methods(asked), asked[3].path], ['POST POST POST DELETE', '/locks/x?unused=true']);
});

test('of a group that is lost before its caller has it the rest is released as unused', async () => {
  const lost = () => results(null, 'lease-lost');
  const path = '/locks?names=x,y';
  for (const [options, unused] of [[{ minHold: '1s' }, '&unused=true'], [{}, '']]) {
    const short = () => json(201, { leases: [{ name: 'x', fencing_token: 1 }, { name: 'y', fencing_token: 2 }], token: 'secret-of-the-lease-42', ttl_ms: 1_000, expires_in_ms: 1_000, renew_after_ms: 300 });
    const before = gateway(late(200, short), lost, undefined, group);
    const it = await before.locks.acquire(['x', 'y'], options);
    const [, , released] = before.asked;
    assert.deepEqual([methods(before.asked), released.path], ['POST PUT DELETE POST', path + unused]);
    await it.release();
    const after = gateway(group, lost);
    await assert.rejects((await after.locks.acquire(['x', 'y'], options)).renew(), LeaseLost);
    await afterwards(after.asked, 3);
    assert.deepEqual([methods(after.asked), after.asked[2].path], ['POST PUT DELETE', path]);
  }
});

test('only a 204 lets a check pass', async () => {
  const { locks, asked } = gateway(() => json(200, { name: 'x', status: 'ok' }), () => new Response(null, { status: 201 }), broken);
  await assert.rejects(locks.check('x', 7), { name: 'LatchgateError', status: 200, code: 'unknown-answer' });
  await locks.check('x', 7, { forMs: 1_500 });
  assert.deepEqual(asked.map(({ method, path, fence, body }) => [method, path, fence, body]), [
    ['GET', '/locks/x/check?for_ms=0', '7', undefined],
    ...Array.from({ length: 3 }, () => ['GET', '/locks/x/check?for_ms=1500', '7', undefined]),
  ]);
});

test('a minimum hold raises a shorter TTL, and shows what rests', async () => {
  for (const [options, sent] of [
    [{ minHold: '1m' }, [undefined, 60_000]],
    [{ minHold: '1m', ttl: '2m' }, [120_000, 60_000]],
    [{ minHold: '1m', ttl: '1s' }, [60_000, 60_000]],
    [{ minHold: '1s' }, [undefined, 1_000]],
    [{}, [undefined, undefined]],
  ]) {
    const { locks, asked } = gateway(lease);
    await (await locks.acquire('x', options)).release();
    const { ttl_ms, min_hold_ms } = asked[0].body;
    assert.deepEqual([ttl_ms, min_hold_ms], sent);
  }
  const { locks } = gateway(() => json(200, { name: 'x', state: 'resting', holders: [], holder_count: 0, resting: [{ fencing_token: 7, slot: 1, available_in_ms: 9 }], waiters: [], waiter_count: 0 }));
  const lock = await locks.inspect('x');
  assert.deepEqual([lock.state, lock.resting], ['resting', [{ fencingToken: 7, slot: 1, availableInMs: 9 }]]);
});

test('a 423 without a problem document has no holders', async () => {
  const { locks } = gateway(() => new Response('<h1>Locked</h1>', { status: 423 }));
  const error = await locks.acquire('x').catch((it) => it);
  assert.deepEqual([error instanceof LockHeld, error.code, error.holders], [true, 'locked', []]);
});

test('every error has a code', async () => {
  const cases = [
    [[() => new Response('', { status: 404 })], 'unknown-answer'],
    [[() => new Response('', { status: 502 })], 'outcome-unknown'],
    [[broken], 'outcome-unknown'],
    [[fails('ECONNREFUSED', 'connect ECONNREFUSED')], 'unreachable'],
    // What the last copy came to is not what all of them came to.
    [[broken, () => problem(503, 'overloaded', { retry_after_ms: 60_000 })], 'outcome-unknown'],
  ];
  for (const [answers, code] of cases) {
    const last = answers.at(-1);
    const { locks } = gateway(...answers, ...Array.from({ length: 99 }, () => last));
    const error = await locks.acquire('x', { wait: 1_000 }).catch((it) => it);
    assert.equal(error.code, code, String(error));
  }
  const { locks } = gateway(lease);
  const it = await locks.acquire('x');
  await it.release();
  assert.deepEqual([it.signal.reason.code, it.signal.reason.why], ['lease-lost', 'released']);
});

test('work that has released the lease itself is done', async () => {
  const { locks, asked } = gateway(lease);
  const result = await locks.with('x', async (it) => {
    await it.release();
    return 'done';
  });
  assert.deepEqual([result, methods(asked)], ['done', 'POST DELETE']);
});

test('only a wait may be infinite', async () => {
  const { locks, asked } = gateway(lease);
  await assert.rejects(locks.acquire('x', { ttl: Infinity }), /^TypeError: ttl: /);
  await assert.rejects(locks.acquire('x', { maxHold: Infinity }), /^TypeError: maxHold: /);
  await assert.rejects(locks.break('x', { reason: 'r', grace: Infinity }), /^TypeError: grace: /);
  assert.equal(asked.length, 0);
  const it = await locks.acquire('x', { wait: Infinity });
  await assert.rejects(it.renew(Infinity), /^TypeError: ttl: /);
  await it.release();
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
  const paths = ['/a', 'a/', 'a//b', 'a/.', '../a', 'a/../b', 'a/renew', 'a/b/hold', 'a\\b', 'a%2Fb', 'a/b\n'];
  for (const name of ['', '.', '..', ...paths, 'é', 'a'.repeat(201), undefined, 7, [], ['a', '..'], ['a', 'b/check']]) {
    await assert.rejects(locks.acquire(name), TypeError, String(name));
  }
  assert.equal(asked.length, 0);
});

test('a request to release the lock is told, and shortens the lease', async () => {
  const told = [];
  const { locks } = gateway(lease, renewed({ release_requested: { by: null, reason: 'r', within_ms: 20_000 } }));
  const it = await locks.acquire('x', { onReleaseRequested: (request) => told.push(request) });
  await it.renew();
  assert.deepEqual(await it.releaseRequested, { name: 'x', by: undefined, reason: 'r', withinMs: 20_000 });
  assert(it.expiresInMs < 20_000);
  assert.equal(told.length, 1);
  await it.release();
});

const hurried = (rest) => lease({ ttl_ms: 2_000, expires_in_ms: 2_000, renew_after_ms: 100, ...rest });

/** Why and when a lease ended, and what was asked in some time after that. */
async function ends(asked, it, ms) {
  const reason = await aborted(it.signal);
  const at = performance.now();
  const before = asked.length;
  await new Promise((resolve) => setTimeout(resolve, ms));
  return { reason, at, after: asked.slice(before) };
}

test('a lease that a lost renewal may keep is given back, once the work had its margin to stop', async () => {
  for (const fault of [hangs, broken, () => json(200, { foreign: true }), () => problem(500, 'internal')]) {
    const answer = (init) => (init.method === 'PUT' ? fault(init) : new Response(null, { status: 204 }));
    const { locks, asked } = gateway(hurried, ...Array.from({ length: 99 }, () => answer));
    const it = await locks.acquire('x');
    const { reason, at, after } = await ends(asked, it, 400);
    assert.deepEqual([reason.why, methods(after)], ['expired', 'DELETE']);
    // The margin of 2 s is 100 ms. Timers are early by a moment.
    assert(after[0].at - at > 95, `${after[0].at - at}`);
  }
});

test('a lease that is over without a doubt is not given back', async () => {
  const requested = { release_requested: { by: null, reason: 'r', within_ms: 700 } };
  const cases = [
    ['expired', { renew: false }, hurried],
    ['expired', { maxHold: '2s' }, () => hurried({ hold_expires_in_ms: 2_000 })],
    ['expired', {}, hurried, ...Array.from({ length: 99 }, () => () => problem(403, 'forbidden'))],
    ['expired', {}, hurried, ...Array.from({ length: 99 }, () => () => problem(503, 'overloaded'))],
    ['broken', {}, hurried, renewed({ ttl_ms: 2_000, expires_in_ms: 700, ...requested })],
  ];
  for (const [why, options, ...answers] of cases) {
    const { locks, asked } = gateway(...answers);
    const it = await locks.acquire('x', options);
    const { reason, after } = await ends(asked, it, 300);
    assert.deepEqual([reason.why, methods(after)], [why, '']);
  }
});

test('a release of a lease that was broken or lost says so, and so does the lease', async () => {
  for (const [detail, why] of [['The lease of this token was broken by an operator; the lock is free.', 'broken'], ['unknown', 'lost']]) {
    const { locks, asked } = gateway(lease, () => problem(410, 'lease-lost', { detail }));
    const it = await locks.acquire('x');
    await assert.rejects(it.release(), { name: 'LeaseLost', why, message: detail, status: 410 });
    assert.throws(() => it.check(), { name: 'LeaseLost', why, message: detail, status: 410 });
    assert.equal(it.signal.reason.why, why);
    await assert.rejects(it.release(), { why });
    assert.equal(asked.length, 2);
  }
});

test('a release goes on in the background after an error inside the gateway, not after another refusal', async () => {
  const bug = () => problem(500, 'internal');
  const { locks, asked } = gateway(lease, bug, bug, bug);
  await assert.rejects((await locks.acquire('x')).release(), { code: 'internal' });
  await afterwards(asked, 5);
  assert.equal(methods(asked), 'POST DELETE DELETE DELETE DELETE');
  const no = () => problem(403, 'forbidden');
  const other = gateway(lease, no, no);
  await assert.rejects((await other.locks.acquire('x')).release(), { code: 'forbidden' });
  await new Promise((resolve) => setTimeout(resolve, 500));
  assert.equal(methods(other.asked), 'POST DELETE DELETE');
});

test('what answers a release otherwise than the gateway has not released it', async () => {
  const foreign = () => json(200, { status: 'ok' });
  const { locks, asked } = gateway(lease, foreign, () => json(201, {}), () => new Response('fine'));
  await (await locks.acquire('x')).release();
  assert.equal(methods(asked), 'POST DELETE DELETE DELETE DELETE');
  const other = gateway(() => hurried({ expires_in_ms: 1_000 }), ...Array.from({ length: 99 }, () => foreign));
  await assert.rejects((await other.locks.acquire('x')).release(), { name: 'OutcomeUnknown', code: 'unknown-answer' });
});

test('a wait is kept to, whatever the gateway does', async () => {
  const later = () => problem(503, 'overloaded', { retry_after_ms: 600_000 });
  const cases = [[later, 'overloaded', 900, 1_600], [broken, 'outcome-unknown', 900, 1_600], [hangs, 'outcome-unknown', 900, 3_000]];
  for (const [fault, code, least, most] of cases) {
    const { locks } = gateway(...Array.from({ length: 99 }, () => fault));
    const began = performance.now();
    const error = await locks.acquire('x', { wait: 1_000 }).catch((it) => it);
    const took = performance.now() - began;
    assert.equal(error.code, code);
    assert(took > least && took < most, `${code} after ${took} ms`);
  }
  const { locks } = gateway(later, lease);
  await (await locks.acquire('x', { wait: 500 })).release();
});

test('an error of the listener ends nothing, and is shown', async () => {
  const real = console.error;
  const shown = [];
  console.error = (error) => shown.push(error.message);
  try {
    const listeners = [
      () => {
        throw new Error('thrown');
      },
      async () => {
        throw new Error('rejected');
      },
    ];
    for (const onReleaseRequested of listeners) {
      const { locks } = gateway(() => lease({ release_requested: { by: null, reason: 'r', within_ms: 20_000 } }));
      const it = await locks.acquire('x', { onReleaseRequested });
      await new Promise((resolve) => setTimeout(resolve, 20));
      it.check();
      await it.release();
    }
  } finally {
    console.error = real;
  }
  assert.deepEqual(shown, ['thrown', 'rejected']);
});

test('without work nothing is acquired', async () => {
  const { locks, asked } = gateway();
  for (const args of [['x'], ['x', {}], ['x', {}, 'work']]) await assert.rejects(locks.with(...args), /^TypeError: work: /);
  assert.equal(asked.length, 0);
});
