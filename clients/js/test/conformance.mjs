// The cases of ../../conformance.md, for every runtime.

import { GatewayUnreachable, Latchgate, LatchgateError, LeaseLost, LockHeld, OutcomeUnknown } from '../src/index.js';
import { Case, Skipped, aborted, between, equal, now, ok, rejected, rig, sleep, until, within } from './rig.mjs';

const HOUR = 3_600_000;
const body = (entry) => (typeof entry.body === 'string' ? JSON.parse(entry.body) : entry.body);
const keys = (entries) => [...new Set(entries.map(({ key }) => key))];

export const cases = [];
const define = (id, name, run) => cases.push({ id, name, run });

// === a lease ===

define('C01', 'a free lock is granted, and released', async (t) => {
  const lease = await t.locks.acquire(t.lock, { ttl: '10s' });
  equal([lease.name, lease.names, lease.mode], [t.lock, [t.lock], 'exclusive'], 'name, names and mode');
  ok(lease.token.length >= 20, 'a token');
  ok(Number.isSafeInteger(lease.fencingToken), 'a fencing token');
  equal(lease.fencingTokens, { [t.lock]: lease.fencingToken }, 'fencing tokens');
  between(lease.expiresInMs, 7_000, 10_000, 'what is left');
  equal((await t.state()).state, 'held', 'state');
  await lease.release();
  equal([(await t.state()).state, lease.expiresInMs], ['free', 0], 'state after the release');
  const next = await t.locks.acquire(t.lock);
  ok(next.fencingToken > lease.fencingToken, 'a larger fencing token');

  // A name that is a path is one segment.
  const path = `${t.lock}/acme/web`;
  const held = await t.locks.acquire(path, { renew: false });
  await held.renew();
  equal([held.name, (await t.locks.inspect(path)).state], [path, 'held'], 'a name that is a path');
  await held.release();
  const paths = (await t.log(undefined, `/locks/${t.lock}%2F`)).map((entry) => entry.path);
  equal(paths, ['', '/renew', '', ''].map((operation) => `/locks/${t.lock}%2Facme%2Fweb${operation}`), 'paths');
});

define('C02', 'with releases when its body returns or throws', async (t) => {
  const result = await t.locks.with(t.lock, async (lease, signal) => {
    ok(lease.signal === signal, 'the signal of the lease');
    equal((await t.state()).state, 'held', 'state within');
    return 'done';
  });
  equal([result, (await t.state()).state], ['done', 'free'], 'result and state');
  const mistake = new Error('mine');
  const error = await rejected(
    t.locks.with(t.lock, { ttl: '10s' }, () => {
      throw mistake;
    }),
  );
  ok(error === mistake, 'the error of the body');
  equal((await t.state()).state, 'free', 'state after the error');
  const lease = await t.locks.acquire(t.lock);
  await lease[Symbol.asyncDispose ?? Symbol.for('Symbol.asyncDispose')]();
  equal((await t.state()).state, 'free', 'state after the disposal');
});

define('C03', 'a held lock is LockHeld at once, with its holders', async (t) => {
  const lease = await t.b.acquire(t.lock, { owner: 'somebody' });
  const began = now();
  const error = await rejected(t.locks.acquire(t.lock), LockHeld);
  between(now() - began, 0, 1_000, 'time');
  equal([error.status, error.code], [423, 'locked'], 'status and code');
  equal(error.message, `${t.lock} is held by somebody`, 'message');
  equal(error.holders.map(({ owner, fencingToken }) => [owner, fencingToken]), [['somebody', lease.fencingToken]], 'holders');
  ok(!JSON.stringify(error.problem).includes(lease.token), 'no token in the problem');
});

define('C04', 'inspect shows the holder', async (t) => {
  const mine = t.client('proxy', { owner: 'client' });
  equal((await mine.inspect(t.lock)).state, 'free', 'state before');
  const lease = await mine.acquire(t.lock, { metadata: { some_branch: 'main' } });
  const lock = await mine.inspect(t.lock);
  const [holder] = lock.holders;
  equal([lock.state, lock.holderCount, holder.owner, holder.metadata, holder.fencingToken], ['held', 1, 'client', { some_branch: 'main' }, lease.fencingToken], 'lock');
  const page = await mine.list({ prefix: t.lock });
  equal(page.locks.map(({ name }) => name), [t.lock], 'the list');
  await lease.release();
  await mine.acquire(t.lock, { owner: 'request' });
  equal((await mine.inspect(t.lock)).holders[0].owner, 'request', 'owner of the request');
  const path = `${t.lock}/web`;
  await mine.acquire(path, { owner: 'request' });
  await mine.break(path, { reason: 'stuck' });
  const [last] = (await mine.history(path)).entries;
  equal([last.owner, last.ended, last.reason, last.metadata], ['request', 'broken', 'stuck', {}], 'the history');
});

define('C05', 'renew gives the lease its TTL again, or another', async (t) => {
  const lease = await t.locks.acquire(t.lock, { ttl: '3s', renew: false });
  await sleep(1_200);
  between(lease.expiresInMs, 0, 1_800, 'before the renewal');
  await lease.renew();
  between(lease.expiresInMs, 2_000, 3_000, 'renewed');
  await lease.renew('10s');
  between(lease.expiresInMs, 7_000, 10_000, 'with another TTL');
  await lease.renew(1_500);
  between(lease.expiresInMs, 0, 1_500, 'with a shorter TTL');
  equal(lease.ttlMs, 1_500, 'the TTL');
  const asked = (await t.log('PUT')).length;
  // On a busy machine one may have been sent again.
  between(asked, 3, 6, 'renewals that were asked for');
  const reason = await within(20_000, aborted(lease.signal), 'the end of the lease');
  equal(reason.why, 'expired', 'why');
  equal((await t.state()).state, 'held', 'state after the shorter TTL');
  equal((await t.log('PUT')).length, asked, 'renewals');
  await t.free(20_000);
});

define('C06', 'a lease is renewed by itself', async (t) => {
  const lease = await t.locks.acquire(t.lock, { ttl: '3s' });
  const shortened = await t.b.acquire(`${t.lock}:shorter`, { ttl: '6s' });
  await shortened.renew('3s');
  await sleep(5_000);
  lease.check();
  shortened.check();
  equal((await t.state()).holders[0]?.fencingToken, lease.fencingToken, 'holder');
  const renewals = await t.log('PUT');
  between(renewals.length, 3, 12, 'renewals');
});

define('C07', 'a hold limit ends a lease before another is granted the lock', async (t) => {
  const lease = await t.locks.acquire(t.lock, { ttl: '2s', maxHold: '3s' });
  const began = now();
  const order = [];
  const ended = aborted(lease.signal).then(() => order.push('aborted'));
  const other = t.b.acquire(t.lock, { wait: '20s' }).then(() => order.push('granted'));
  await within(20_000, Promise.all([ended, other]), 'the end and the grant');
  equal(order, ['aborted', 'granted'], 'order');
  between(now() - began, 2_000, 20_000, 'time');
  await rejected(() => lease.check(), LeaseLost);
});

define('C08', 'a second release changes nothing', async (t) => {
  const lease = await t.locks.acquire(t.lock);
  await lease.release();
  const other = await t.b.acquire(t.lock);
  await lease.release();
  equal((await t.state()).holders[0]?.fencingToken, other.fencingToken, 'holder');
  equal((await rejected(() => lease.renew(), LeaseLost)).why, 'released', 'why');
  equal(lease.signal.reason.why, 'released', 'reason of the signal');
  equal((await t.log('DELETE')).length, 1, 'releases');
  await other.release();

  const old = await t.locks.acquire(t.lock);
  const next = t.b.acquire(t.lock, { wait: '20s' });
  await t.queued(1);
  await t.fault('lose-reply', 1, { method: 'DELETE' });
  await old.release();
  const held = await within(10_000, next, 'the grant to the next');
  equal((await t.log('DELETE')).slice(1).map(({ token }) => token), [old.token, old.token], 'tokens of the copies');
  equal((await t.state()).holders[0]?.fencingToken, held.fencingToken, 'holder after the copies');
});

define('C09', 'durations arrive in milliseconds', async (t) => {
  const durations = [500, '500ms', '30s', '10m', '2h', '1d'];
  for (const maxHold of durations) {
    const lease = await t.locks.acquire(t.lock, { maxHold, renew: false }).catch(() => undefined);
    await lease?.release().catch(() => {});
  }
  const sent = (await t.log('POST')).map((entry) => body(entry).max_hold_ms);
  equal(sent, [500, 500, 30_000, 600_000, 2 * HOUR, 24 * HOUR], 'max_hold_ms');
  for (const bad of [-1, '-1s', '5 apples', '', NaN, '5', null]) {
    await rejected(t.locks.acquire(t.lock, { ttl: bad }), TypeError);
    await rejected(t.locks.acquire(t.lock, { wait: bad }), TypeError);
  }
  equal((await t.log('POST')).length, durations.length, 'requests');
});

// === waiting ===

define('C10', 'waiters are granted the lock in their order, at once', async (t) => {
  const lease = await t.locks.acquire(t.lock);
  const order = [];
  const take = async (who) => {
    const granted = await t.locks.acquire(t.lock, { wait: '20s' });
    order.push(who);
    return granted;
  };
  const first = take('first');
  await t.queued(1);
  const second = take('second');
  await t.queued(2);
  const released = now();
  await lease.release();
  const granted = await within(20_000, first, 'the first grant');
  between(now() - released, 0, 1_000, 'time until the grant');
  await sleep(100);
  equal(order, ['first'], 'order while the first holds');
  await granted.release();
  await within(20_000, second, 'the second grant');
  equal(order, ['first', 'second'], 'order');
});

define('C11', 'a wait that runs out is LockHeld and leaves the queue', async (t) => {
  await t.b.acquire(t.lock);
  const began = now();
  const error = await rejected(t.locks.acquire(t.lock, { wait: '1500ms' }), LockHeld);
  between(now() - began, 1_490, 3_500, 'time');
  equal([error.status, error.holders.length], [423, 1], 'status and holders');
  equal((await t.state()).waiterCount, 0, 'waiters');
});

define('C12', 'the place is kept over a chain of waits and a restart', async (t) => {
  const env = { LATCHGATE_LIMITS_MAX_WAIT_MS: '1000' };
  for (const which of ['a', 'b']) {
    await t.rig('/gateway', { which, do: 'term' });
    await t.rig('/gateway', { which, do: 'start', env });
  }
  const lease = await t.b.acquire(t.lock);
  const began = now();
  const order = [];
  const take = async (client, who) => {
    const granted = await client.acquire(t.lock, { wait: '30s' });
    order.push(who);
    await granted.release();
  };
  const first = take(t.locks, 'first');
  await t.queued(1);
  const second = take(t.b, 'second');
  await t.queued(2);
  await t.rig('/proxy', { to: 'b' });
  await t.rig('/gateway', { which: 'a', do: 'term' });
  await t.rig('/gateway', { which: 'a', do: 'start', env });
  await sleep(Math.max(4_000 - (now() - began), 0));
  await lease.release();
  await within(60_000, Promise.all([first, second]), 'both grants');
  equal(order, ['first', 'second'], 'order');
  const asked = await t.log('POST');
  ok(asked.length >= 8, 'a chain of requests');
  equal(keys(asked).length, 1, 'idempotency keys of the chain');
});

define('C13', 'a waiter that is aborted gives its place up', async (t) => {
  const lease = await t.b.acquire(t.lock);
  const controller = new AbortController();
  const waiting = t.locks.acquire(t.lock, { wait: Infinity, signal: controller.signal });
  waiting.catch(() => {});
  await t.queued(1);
  const reason = new Error('enough');
  const began = now();
  controller.abort(reason);
  ok((await rejected(waiting)) === reason, 'the reason of the signal');
  between(now() - began, 0, 1_000, 'time');
  await until(2_000, async () => (await t.state()).waiterCount === 0, 'an empty queue');
  await lease.release();

  await t.fault('hang-reply', 1, { method: 'POST' });
  const late = new AbortController();
  const granted = t.locks.acquire(t.lock, { wait: '20s', ttl: '1m', minHold: '1m', signal: late.signal });
  granted.catch(() => {});
  await until(20_000, async () => (await t.state()).state === 'held', 'a grant that is not answered');
  late.abort(reason);
  ok((await rejected(granted)) === reason, 'the reason of the second signal');
  await t.free(20_000);
  ok((await rejected(t.locks.acquire(t.lock, { signal: AbortSignal.abort(reason) }))) === reason, 'the reason of the third');
});

// === sharing ===

define('C14', 'shared leases exclude an exclusive one', async (t) => {
  const one = await t.locks.acquire(t.lock, { mode: 'shared' });
  const two = await t.b.acquire(t.lock, { mode: 'shared' });
  ok(one.token !== two.token, 'two tokens');
  equal([one.mode, one.slot], ['shared', undefined], 'mode and slot');
  const error = await rejected(t.locks.acquire(t.lock), LockHeld);
  equal(error.holders.length, 2, 'holders');
  let granted = false;
  const alone = t.locks.acquire(t.lock, { wait: '20s' }).then((lease) => {
    granted = true;
    return lease;
  });
  await t.queued(1);
  await one.release();
  await sleep(200);
  ok(!granted, 'no grant while one holds');
  await two.release();
  equal((await within(20_000, alone, 'the exclusive grant')).mode, 'exclusive', 'mode');
});

define('C15', 'a limit gives slots', async (t) => {
  const zero = await t.locks.acquire(t.lock, { limit: 2 });
  const one = await t.locks.acquire(t.lock, { limit: 2, mode: 'shared' });
  equal([zero.slot, one.slot, zero.slots], [0, 1, { [t.lock]: 0 }], 'slots');
  await rejected(t.locks.acquire(t.lock, { limit: 2 }), LockHeld);
  await zero.release();
  equal((await t.locks.acquire(t.lock, { limit: 2 })).slot, 0, 'the slot that was released');
});

define('C16', 'a group is granted and released as one', async (t) => {
  const [x, y] = [`${t.lock}-x`, `${t.lock}-y`];
  const group = await t.locks.acquire([y, x], { ttl: '2s' });
  equal([group.name, group.names, Object.keys(group.fencingTokens).sort()], [y, [y, x], [x, y]], 'names');
  equal(group.fencingToken, group.fencingTokens[y], 'the fencing token of the first');
  await sleep(2_500);
  group.check();
  await group.renew('10s');
  between(group.expiresInMs, 7_000, 10_000, 'renewed');
  await group.release();
  await t.free(1_000, x);
  await t.free(1_000, y);
  await t.b.acquire(x);
  const error = await rejected(t.locks.acquire([x, y]), LockHeld);
  equal(error.problem.name, x, 'the lock that is held');
  await t.free(1_000, y);

  const pool = { name: `${t.lock}-pool`, limit: 2 };
  const one = await t.locks.acquire([`${t.lock}-1`, pool]);
  const two = await t.locks.acquire([{ name: pool.name, mode: 'shared', limit: 2 }, { name: `${t.lock}-2` }]);
  equal([one.slots, two.slot], [{ [`${t.lock}-1`]: undefined, [pool.name]: 0 }, 1], 'slots');
  equal([one.mode, one.modes, two.mode], ['exclusive', { [`${t.lock}-1`]: 'exclusive', [pool.name]: 'shared' }, 'shared'], 'modes');
  equal((await rejected(t.locks.acquire([`${t.lock}-3`, pool]), LockHeld)).problem.name, pool.name, 'the lock that is full');
  await rejected(t.locks.acquire(pool.name), LockHeld);
  await one.release();
  equal((await t.locks.acquire(pool)).slot, 0, 'one lock with its terms');

  const [v, w] = [`${t.lock}-v`, `${t.lock}-w`];
  const partial = await t.locks.acquire([v, w], { ttl: '1500ms' });
  await t.b.break(v, { reason: 'a part', fencingToken: partial.fencingTokens[v] });
  const reason = await within(20_000, aborted(partial.signal), 'the loss of one');
  equal(reason.why, 'broken', 'why');
  await t.free(1_000, w);
});

define('C17', 'a holder is asked first', async (t) => {
  const heard = [];
  const lease = await t.locks.acquire(t.lock, { ttl: '6s', onReleaseRequested: (request) => heard.push(request) });
  await t.b.break(t.lock, { reason: 'a newer one', fencingToken: lease.fencingToken, grace: '5s' });
  const asked = now();
  const request = await within(20_000, lease.releaseRequested, 'the request');
  equal([request.name, request.reason, heard.length], [t.lock, 'a newer one', 1], 'request');
  ok('by' in request, 'who asks');
  between(request.withinMs, 1, 5_000, 'withinMs');
  lease.check();
  const reason = await within(20_000, aborted(lease.signal), 'the end');
  equal([reason instanceof LeaseLost, reason.why, heard.length], [true, 'broken', 1], 'reason');
  between(now() - asked, 3_000, 20_000, 'time');
  await t.free(20_000);

  const long = await t.locks.acquire(t.lock, { ttl: '1h' });
  const before = now();
  await t.b.break(t.lock, { reason: 'a newer one', fencingToken: long.fencingToken, grace: '6s' });
  await long.renew();
  equal((await within(20_000, aborted(long.signal), 'the end of the long one')).why, 'broken', 'why');
  between(now() - before, 4_000, 20_000, 'time');
});

// === before the lease can be somebody else's ===

/** Lets nothing else run for so long. */
function busy(t, ms) {
  const end = now() + ms;
  // A clock that stands still while code runs allows no such pause.
  for (let i = 0; now() < end; i += 1) if (i > 2e5 && now() < end - ms + 1) t.skip('the clock stands still while code runs');
}

define('C18', 'a gateway that hangs ends the lease in time', async (t) => {
  const lease = await t.locks.acquire(t.lock, { ttl: '4s' });
  const order = [];
  const times = [];
  const note = (what) => {
    order.push(what);
    times.push(now());
  };
  const other = t.b.acquire(t.lock, { wait: '20s' }).then(() => note('granted'));
  await t.queued(1);
  // A release would get through.
  await t.fault('hang', 99, { method: 'PUT' });
  const held = aborted(lease.signal).then((reason) => {
    note('aborted');
    equal([reason instanceof LeaseLost, reason.why], [true, 'expired'], 'reason');
    return t.state();
  });
  const lock = await within(40_000, held, 'the end of the lease');
  equal([lock.state, lock.holders[0]?.fencingToken], ['held', lease.fencingToken], 'the lock at the other gateway');
  await within(40_000, other, 'the grant');
  equal(order, ['aborted', 'granted'], 'order');
  // The margin of 4 s is 200 ms. Timers of some runtimes are late or early by a moment.
  ok(times[1] - times[0] > 100, `a margin for the work to stop, not ${times[1] - times[0]} ms`);
});

define('C19', 'after a pause the first check throws', async (t) => {
  const lease = await t.locks.acquire(t.lock, { ttl: '3s' });
  const other = t.b.acquire(t.lock, { wait: '20s' });
  await t.queued(1);
  busy(t, 4_000);
  let error;
  try {
    lease.check();
  } catch (thrown) {
    error = thrown;
  }
  equal([error instanceof LeaseLost, error?.why, lease.signal.aborted, lease.expiresInMs], [true, 'expired', true, 0], 'check');
  ok(lease.signal.reason === error, 'the same reason');
  await within(20_000, other, 'the grant to the other');
});

define('C20', 'a clock that jumps changes nothing', async (t) => {
  const lease = await t.locks.acquire(t.lock, { ttl: '2s' });
  const real = Date.now;
  try {
    for (const jump of [HOUR, -HOUR]) {
      const before = lease.expiresInMs;
      Date.now = () => real() + jump;
      lease.check();
      between(lease.expiresInMs, before - 200, 2_000, 'what is left after the jump');
      await sleep(2_500);
      lease.check();
      equal((await t.state()).holders[0]?.fencingToken, lease.fencingToken, 'holder');
    }
  } finally {
    Date.now = real;
  }
  between((await t.log('PUT')).length, 6, 24, 'renewals');
});

define('C21', 'a break ends the lease', async (t) => {
  const lease = await t.locks.acquire(t.lock, { ttl: '2s' });
  await t.b.break(t.lock, { reason: 'the test', fencingToken: lease.fencingToken });
  const reason = await within(20_000, aborted(lease.signal), 'the end');
  equal([reason.why, reason.status, reason.code], ['broken', 410, 'lease-lost'], 'reason');
  ok((await rejected(() => lease.renew(), LeaseLost)) === reason, 'the reason from renew');
  ok((await rejected(() => lease.check(), LeaseLost)) === reason, 'the reason from check');
  const renewals = (await t.log('PUT')).length;
  await sleep(1_000);
  equal((await t.log('PUT')).length, renewals, 'renewals');
  const error = await rejected(t.locks.with(`${t.lock}-2`, { ttl: '1s' }, async (held) => {
    await t.b.break(held.name, { reason: 'the test', all: true });
    await aborted(held.signal);
  }), LeaseLost);
  equal(error.why, 'broken', 'why of with');
});

// === when something fails ===

define('C22', 'an unknown outcome is repeated under the same key', async (t) => {
  await t.fault('unknown', 3, { method: 'POST' });
  const lease = await t.locks.acquire(t.lock);
  const asked = await t.log('POST');
  equal([asked.length, keys(asked).length, new Set(asked.map((it) => JSON.stringify(it.body))).size], [4, 1, 1], 'requests, keys and bodies');
  const lock = await t.state();
  equal(lock.holders.map(({ fencingToken }) => fencingToken), [lease.fencingToken], 'holders');
});

define('C23', 'lost replies do no harm', async (t) => {
  await t.fault('lose-reply', 1, { method: 'POST' });
  const lease = await t.locks.acquire(t.lock);
  const asked = await t.log('POST');
  equal([asked.length, keys(asked).length], [2, 1], 'acquires and keys');
  equal((await t.state()).holders.map(({ fencingToken }) => fencingToken), [lease.fencingToken], 'holders');
  await t.fault('lose-reply', 1, { method: 'PUT' });
  await lease.renew('20s');
  equal((await t.log('PUT')).length, 2, 'renewals');
  between(lease.expiresInMs, 15_000, 20_000, 'what is left');
  await t.fault('lose-reply', 1, { method: 'DELETE' });
  await lease.release();
  equal([(await t.log('DELETE')).length, (await t.state()).state], [2, 'free'], 'releases and state');
});

define('C24', 'Retry-After is honoured', async (t) => {
  const pause = async (status, code, where) => {
    const name = `${t.lock}-${status}-${where}`;
    await t.fault('status', 1, { method: 'POST', path: `/locks/${name}`, status, code, retry_after: 1, retry_after_in: where });
    await t.locks.acquire(name);
    const [one, two, ...more] = await t.log('POST', `/locks/${name}`);
    between(two.at_ms - one.answered_at_ms, 1_000, 10_000, `pause after ${status} with ${where}`);
    equal([more.length, keys([one, two]).length], [0, 1], 'requests and keys');
  };
  const places = ['header', 'body', undefined];
  await Promise.all(places.flatMap((where) => [pause(503, 'overloaded', where), pause(429, 'rate-limited', where)]));
});

define('C25', 'a refusal is not repeated', async (t) => {
  await t.fault('status', 5, { method: 'POST', status: 403, code: 'forbidden' });
  const error = await rejected(t.locks.acquire(t.lock, { wait: '5s' }), LatchgateError);
  equal([error.status, error.code, error.problem.status], [403, 'forbidden', 403], 'status, code, problem');
  equal([typeof error.detail, error.name], ['string', 'LatchgateError'], 'detail and name');
  equal((await t.log('POST')).length, 1, 'requests');
  // Nor is what cannot be sent at all.
  const mistakes = [
    (url) => fetch(url, { headers: { a: 'b\nc' } }),
    () => fetch('http://'),
    () => undefined.body,
  ];
  for (const mistake of mistakes) {
    const mistaken = t.client('proxy', { fetch: mistake });
    const thrown = await within(20_000, rejected(mistaken.acquire(t.lock, { wait: Infinity })), 'a refusal');
    equal(thrown.name, 'TypeError', `the name of ${thrown}`);
  }
  equal((await t.log('POST')).length, 1, 'requests after the mistakes');
  await t.rig('/fault', undefined, 'DELETE');
  await t.fault('status', 1, { method: 'POST', status: 408, code: 'request-timeout' });
  await t.locks.acquire(t.lock);
  equal((await t.log('POST')).length, 3, 'requests after 408');
  // A refusal says nothing about an earlier copy.
  const refused = async (bare) => {
    const name = `${t.lock}-${bare}`;
    const path = `/locks/${name}`;
    const lease = await t.locks.acquire(name, { ttl: '1m', renew: false });
    for (const method of ['POST', 'DELETE']) await t.fault('lose-request', 1, { method, path });
    await t.fault('status', 99, { path, status: 403, code: 'forbidden', bare });
    equal((await rejected(lease.release(), OutcomeUnknown)).status, 403, 'status');
    await rejected(t.locks.acquire(name, { wait: '1m' }), OutcomeUnknown);
  };
  await Promise.all([refused(false), refused(true)]);
});

define('C26', 'a broken connection is repeated', async (t) => {
  await t.fault('lose-request', 3, { method: 'POST' });
  await t.locks.acquire(t.lock);
  const asked = await t.log('POST');
  equal([asked.length, keys(asked).length], [4, 1], 'requests and keys');
  // The first pauses of several: that they grow would not be enough.
  const pauses = [];
  for (let i = 0; i < 8; i += 1) {
    const name = `${t.lock}-${i}`;
    await t.fault('lose-request', 1, { method: 'POST', path: `/locks/${name}` });
    await t.locks.acquire(name);
    const [one, two] = await t.log('POST', `/locks/${name}`);
    pauses.push(two.at_ms - one.at_ms);
  }
  ok(Math.max(...pauses) - Math.min(...pauses) >= 20, `pauses that differ: ${pauses}`);
  const began = now();
  const nobody = t.client('nobody');
  const error = await rejected(nobody.acquire(t.lock), GatewayUnreachable);
  between(now() - began, 0, 12_000, 'time');
  equal(error.status, 0, 'status');
});

define('C27', 'a request that hangs is given up and repeated', async (t) => {
  await t.fault('hang', 1, { method: 'POST' });
  const began = now();
  await t.locks.acquire(t.lock, { wait: '30s' });
  between(now() - began, 500, 30_000, 'time');
  const asked = await t.log('POST');
  equal([asked.length, keys(asked).length], [2, 1], 'requests and keys');
});

// === who asks, and who is done ===

define('C28', 'the key is sent, and no secret is shown', async (t) => {
  const key = 'latchgate_key_0123456789abcdefghij';
  const idempotencyKey = 'idempotency-key-0123456789';
  const sent = [];
  const spy = (url, init) => {
    sent.push([init.method, new Headers(init.headers).get('authorization')]);
    const headers = { ...init.headers };
    delete headers.authorization;
    return fetch(url, { ...init, headers });
  };
  const locks = t.client('proxy', { key, fetch: spy });
  const lease = await locks.acquire(t.lock, { idempotencyKey });
  await lease.renew();
  await locks.inspect(t.lock);
  const errors = [await rejected(locks.acquire(t.lock), LockHeld)];
  await t.b.break(t.lock, { reason: 'the test', all: true });
  errors.push(await rejected(() => lease.renew(), LeaseLost));
  errors.push(await rejected(locks.acquire(t.lock, { idempotencyKey, ttl: 5_000 })));
  await t.fault('lose-reply', 9, { method: 'POST' });
  errors.push(await rejected(locks.acquire(t.lock, { wait: 300 })));
  errors.push(await rejected(t.client('nobody', { key }).acquire(t.lock, { wait: 100 })));
  errors.push(await rejected(() => new Latchgate('http://localhost', { key: `${key}\n` }), TypeError));
  errors.push(await rejected(locks.acquire(t.lock, { idempotencyKey: `${idempotencyKey}\n` }), TypeError));
  for (const [method, authorization] of sent) {
    if (method !== 'DELETE') equal(authorization, `Bearer ${key}`, `Authorization of ${method}`);
  }
  ok(sent.some(([method]) => method === 'PUT') && sent.some(([method]) => method === 'GET'), 'requests of each kind');
  const all = [locks, lease, ...errors];
  const shown = [...all.flatMap((it) => [String(it), JSON.stringify(it)]), ...reachable(all)];
  // Browsers have no such function: what a console shows there can be reached.
  const { inspect = String } = await import('node:util').catch(() => ({}));
  shown.push(...all.map((it) => inspect(it, { depth: 9, showHidden: true })));
  ok(shown.some((text) => text?.includes(t.lock)), 'the name of the lock in a text');
  for (const secret of [key, lease.token, idempotencyKey]) {
    ok(!shown.some((text) => text?.includes(secret)), 'no secret in a text');
  }
});

/** All texts that can be reached from a value without the help of its class. */
function* reachable(value, seen = new Set()) {
  if (typeof value === 'string') yield value;
  // A signal leads to what the runtime keeps for itself.
  if (Object(value) !== value || seen.has(value) || value instanceof AbortSignal) return;
  seen.add(value);
  for (const key of Reflect.ownKeys(value)) {
    yield String(key);
    const { get, value: own } = Object.getOwnPropertyDescriptor(value, key);
    // The stack of an error is one of the runtime's getters.
    yield* reachable(get ? value[key] : own, seen);
  }
}

define('C29', 'every acquire has a key of its own, or the given one', async (t) => {
  for (let i = 0; i < 3; i += 1) await t.locks.with(t.lock, () => {});
  const minted = keys(await t.log('POST'));
  equal(minted.length, 3, 'keys');
  ok(minted.every((key) => key.length >= 22), 'long keys');
  await t.rig('/log', undefined, 'DELETE');
  const idempotencyKey = `given-${minted[0]}`;
  const one = await t.locks.acquire(t.lock, { idempotencyKey });
  const two = await t.b.acquire(t.lock, { idempotencyKey });
  equal([one.token === two.token, one.fencingToken], [true, two.fencingToken], 'one lease');
  equal(keys(await t.log('POST')), [idempotencyKey], 'the key that was sent');

  await one.release();
  // The place is kept until the other waiter has come, however slow the machine is.
  const env = { LATCHGATE_LIMITS_RECONNECT_GRACE_MS: '60000' };
  await t.rig('/gateway', { which: 'a', do: 'term' });
  await t.rig('/gateway', { which: 'a', do: 'start', env });
  const held = await t.b.acquire(t.lock);
  // A copy that has less than a millisecond left must not give the place up either.
  const turn = { idempotencyKey: `turn-${minted[0]}`, wait: 1 };
  await rejected(t.locks.acquire(t.lock, turn), LockHeld);
  const later = t.b.acquire(t.lock, { wait: '1m' });
  await t.queued(2);
  const again = t.locks.acquire(t.lock, { ...turn, wait: '1m' });
  await held.release();
  const first = await within(20_000, again, 'the place that was kept');
  await first.release();
  const second = await within(20_000, later, 'the next');
  ok(first.fencingToken < second.fencingToken, 'the order');
  await second.release();
});

define('C30', 'whoever closes gives back', async (t) => {
  const locks = t.client();
  const lease = await locks.acquire(t.lock, { ttl: '1m' });
  await locks.close();
  await t.free(1_000);
  equal(lease.signal.reason.why, 'released', 'why');

  const held = await t.b.acquire(t.lock);
  const waiting = rejected(locks.acquire(t.lock, { wait: Infinity }), LatchgateError);
  await t.queued(1);
  await locks.close();
  equal([(await within(20_000, waiting, 'the end of the wait')).code, (await t.state()).waiterCount], ['closed', 0], 'code and waiters');
  await held.release();

  // A page in this page, which is left, and one that is taken away.
  if (!globalThis.document) return;
  for (const leave of [(frame) => (frame.contentWindow.location = 'about:blank'), (frame) => frame.remove()]) {
    const frame = document.createElement('iframe');
    frame.src = new URL('../../../tests/clients/page.html', import.meta.url);
    document.body.append(frame);
    await until(20_000, () => frame.contentWindow.loaded, 'the page is loaded');
    await frame.contentWindow.acquireInPage(t.lock);
    equal((await t.state()).state, 'held', 'state of the page');
    leave(frame);
    await t.free(5_000);
    frame.remove();
  }
});

// === answers of proxies, and answers that make no sense ===

define('C31', '429 is asked again, whoever answers', async (t) => {
  const code = 'too-many-leases';
  const tried = async (bare) => {
    const name = `${t.lock}-${bare}`;
    const path = `/locks/${name}`;
    const fault = (method) => t.fault('status', 1, { method, path, status: 429, code, bare, retry_after: 1 });
    await fault('POST');
    const lease = await t.locks.acquire(name, { ttl: '1m', wait: '20s', renew: false });
    await fault('PUT');
    await lease.renew();
    await fault('DELETE');
    await lease.release();
    for (const method of ['POST', 'PUT', 'DELETE']) {
      const [one, two] = await t.log(method, path);
      equal(one.status, 429, `the first answer to ${method}`);
      between(two.at_ms - one.answered_at_ms, 1_000, 10_000, `pause after ${method}`);
    }
  };
  await Promise.all([tried(false), tried(true)]);
  const late = `${t.lock}-late`;
  await t.fault('status', 99, { path: `/locks/${late}`, status: 429, code, retry_after: 60 });
  const began = now();
  const error = await rejected(t.locks.acquire(late, { wait: '2s' }), LatchgateError);
  equal(error.code, code, 'code');
  // A timer may fire a millisecond early.
  between(now() - began, 1_990, 4_000, 'time');
  equal((await t.log('POST', `/locks/${late}`)).length, 2, 'copies');
  const gone = `${t.lock}-gone`;
  await t.fault('status', 99, { path: `/locks/${gone}`, status: 502, bare: true });
  const again = now();
  await rejected(t.locks.acquire(gone, { wait: '2s' }), OutcomeUnknown);
  between(now() - again, 1_990, 4_000, 'time');
});

define('C32', 'an answer that drips is given up in time', async (t) => {
  const drips = async (from) => {
    const name = `${t.lock}-${from}`;
    const path = `/locks/${name}`;
    await t.fault('drip', 1, { method: 'POST', path, ms: 100, from });
    await (await t.locks.acquire(name, { ttl: '1m' })).release();
    const [one, two, ...more] = await t.log('POST', path);
    equal([one.key === two.key, more.length], [true, 0], 'copies of the acquire');
    between(two.at_ms - one.at_ms, 0, 10_000, 'time of the first copy');
    const lease = await t.locks.acquire(name, { ttl: '6s' });
    await t.fault('drip', 1, { method: 'PUT', path, ms: 100, from });
    await sleep(8_000);
    lease.check();
    equal((await t.state(name)).holders[0]?.fencingToken, lease.fencingToken, 'holder');
    await lease.release();
  };
  await Promise.all([drips('head'), drips('body')]);
});

define('C33', 'an answer without end is not read', async (t) => {
  await t.fault('flood', 1, { method: 'POST', bytes: 200_000_000 });
  await (await t.locks.acquire(t.lock)).release();
  const [one, two] = await t.log('POST');
  equal(one.key === two.key, true, 'one key');
  between(one.sent, 0, 100_000_000, 'bytes that were taken');
});

define('C34', 'a number that JSON does not carry is none, nor is an answer about another lock', async (t) => {
  const tried = async (field, number) => {
    const name = `${t.lock}-${field}`;
    await t.fault('alter', 1, { method: 'POST', path: `/locks/${name}`, fields: { [field]: number } });
    await rejected(t.locks.acquire(name, { ttl: '1m' }), OutcomeUnknown);
    await t.free(2_000, name);
  };
  const fields = ['fencing_token', 'ttl_ms', 'expires_in_ms', 'renew_after_ms'];
  for (const field of fields) for (const number of [2 ** 53, 1e300]) await tried(field, number);

  const lease = await t.locks.acquire(t.lock, { ttl: '3s' });
  await t.fault('alter', 99, { method: 'PUT', fields: { expires_in_ms: 2 ** 53 } });
  const reason = await within(20_000, aborted(lease.signal), 'the end');
  equal(reason.why, 'expired', 'why');
  ok((await t.log('PUT')).length >= 2, 'renewals that are repeated');

  await t.reset();
  const name = `${t.lock}-other`;
  const other = (method) => t.fault('alter', 1, { method, fields: { name: 'other' } });
  const told = async (promise, Failure) => {
    const error = await rejected(promise, Failure);
    ok(error.message.includes('a proxy changed the path'), error.message);
  };
  await other('POST');
  await told(t.locks.acquire(name, { ttl: '1m' }), OutcomeUnknown);
  await t.free(2_000, name);
  await t.locks.acquire(name, { ttl: '1m', renew: false });
  await other('GET');
  await told(t.locks.inspect(name), LatchgateError);
  await other('POST');
  await told(t.locks.break(name, { reason: 'it hangs' }), OutcomeUnknown);
});

define('C35', 'a busy thread finds its lease over at once', async (t) => {
  const checked = await t.locks.acquire(t.lock, { ttl: '2s' });
  const { signal } = await t.locks.acquire(`${t.lock}-2`, { ttl: '2s' });
  const heard = aborted((await t.locks.acquire(`${t.lock}-3`, { ttl: '2s' })).signal);
  const other = t.b.acquire(t.lock, { wait: '20s' });
  await t.queued(1);
  busy(t, 4_000);
  // Nothing else has run.
  ok(signal.aborted, 'a signal that is aborted');
  let thrown;
  try {
    checked.check();
  } catch (error) {
    thrown = error;
  }
  equal([thrown instanceof LeaseLost, thrown?.why], [true, 'expired'], 'check');
  equal((await rejected(() => signal.throwIfAborted(), LeaseLost)).why, 'expired', 'why');
  equal((await within(1_000, heard, 'the event')).why, 'expired', 'why of the event');
  await within(20_000, other, 'the grant to the other');
});

// === what a resource asks ===

define('C36', 'check passes while a lease with the fencing token holds the lock', async (t) => {
  const lease = await t.locks.acquire(t.lock, { ttl: '30s', renew: false });
  const { fencingToken } = lease;
  equal(await t.locks.check(t.lock, fencingToken), undefined, 'what a check resolves to');
  await t.locks.check(t.lock, fencingToken, { forMs: 10_000 });
  const early = await rejected(t.locks.check(t.lock, fencingToken, { forMs: 31_000 }), LatchgateError);
  equal([early.status, early.code], [403, 'ends-too-soon'], 'of a lease that ends too soon');
  between(early.problem.expiresInMs, 1, 30_000, 'what is left');
  const checks = async () => (await t.log('GET', `/locks/${t.lock}/check`)).length;
  const before = await checks();
  await t.fault('lose-reply', 1, { method: 'GET' });
  await t.locks.check(t.lock, fencingToken);
  equal((await checks()) - before, 2, 'copies of a check whose answer is lost');
  await rejected(t.locks.check(t.lock, 1), LatchgateError);
  equal((await checks()) - before, 3, 'checks with a refusal');
  for (const wrong of ['7', '7\r\nX: y', 7.5, 0, -1, NaN, 2 ** 53, null, undefined]) {
    await rejected(t.locks.check(t.lock, wrong), TypeError);
  }
  for (const forMs of [-1, 'soon', Infinity]) await rejected(t.locks.check(t.lock, fencingToken, { forMs }), TypeError);
  equal((await checks()) - before, 3, 'checks after the mistakes');
  await lease.release();
  const late = await rejected(t.locks.check(t.lock, fencingToken), LatchgateError);
  equal([late.status, late.code], [403, 'stale-fencing-token'], 'of a lease that is over');
  const path = `${t.lock}/web`;
  const other = await t.locks.acquire(path);
  await t.locks.check(path, other.fencingToken);
});

// === a lost lock ===

define('C37', 'a lock that was lost is never success', async (t) => {
  const asyncDispose = Symbol.asyncDispose ?? Symbol.for('Symbol.asyncDispose');
  const forms = {
    with: (locks, names, options, work) => locks.with(names, options, work),
    dispose: async (locks, names, options, work) => {
      const lease = await locks.acquire(names, options);
      await work(lease);
      await lease[asyncDispose]();
    },
    release: async (locks, names, options, work) => {
      const lease = await locks.acquire(names, options);
      await work(lease);
      await lease.release();
    },
  };
  for (const [form, run] of Object.entries(forms)) {
    for (const [count, minHold] of [[1, undefined], [1, '1s'], [2, undefined]]) {
      const names = ['one', 'two'].map((name) => `${t.lock}-${form}-${count}-${minHold}-${name}`).slice(0, count);
      const options = { ttl: '1m', minHold };
      const free = async () => {
        for (const name of names) {
          await t.b.break(name, { reason: 'the test', all: true }).catch(() => {});
          await t.free(2_000, name);
        }
      };
      const broken = async () => {
        await t.b.break(names[0], { reason: 'the test', all: true });
        await t.b.acquire(names[0]);
      };
      const work = { released: broken, renewed: (lease) => broken().then(() => rejected(lease.renew(), LeaseLost)) };
      for (const [when, ends] of Object.entries(work)) {
        const error = await rejected(run(t.locks, names, options, ends), LeaseLost);
        equal(error.why, 'broken', `why, ${form} ${when} ${names}`);
        if (count > 1) await t.free(2_000, names[1]);
        await free();
      }
      const told = [];
      const locks = t.client('proxy', { warn: (text) => told.push(text) });
      const fault = (kind, times, rest) => t.fault(kind, times, { method: 'DELETE', path: count > 1 ? '/locks?names=' : `/locks/${names[0]}`, ...rest });
      const inDoubt = async () => {
        await fault('lose-request', 1);
        await fault('status', 1, { status: 410, code: 'lease-lost' });
      };
      equal((await rejected(run(locks, names, options, inDoubt), OutcomeUnknown)).status, 410, 'status');
      equal(told, [], 'warnings');
      await free();
    }
  }
  // No gateway answers the release.
  const told = [];
  const locks = t.client('proxy', { warn: (text) => told.push(text) });
  equal(await locks.with(t.lock, { ttl: '2s' }, () => t.fault('lose-request', 99, { method: 'DELETE' }).then(() => 'done')), 'done', 'result');
  ok(told.at(-1)?.includes('not known whether'), 'a warning');
});

define('C38', 'a lock is granted for no older work', async (t) => {
  const first = await t.locks.acquire(t.lock, { order: 5, owner: 'run 5' });
  await first.release();
  await t.rig('/log', undefined, 'DELETE');
  const began = now();
  await t.fault('lose-reply', 1, { method: 'POST' });
  const error = await rejected(t.locks.acquire(t.lock, { order: 4, wait: '1m' }), LatchgateError);
  between(now() - began, 0, 5_000, 'time');
  const { order, grantedOrder, orderGranted } = error.problem;
  equal([error.name, error.status, error.code, order, grantedOrder, orderGranted.owner], ['LatchgateError', 409, 'outdated-order', 4, 5, 'run 5'], 'error');
  equal((await t.log('POST')).length, 2, 'requests');
  const equalOne = await t.locks.acquire(t.lock, { order: 5 });

  const seventh = t.locks.acquire(t.lock, { order: 7, wait: '1m' });
  await t.queued(1);
  const sixth = rejected(t.locks.acquire(t.lock, { order: 6, wait: '1m' }), LatchgateError);
  await t.queued(2);
  await equalOne.release();
  const lease = await seventh;
  const released = now();
  await lease.release();
  equal((await sixth).code, 'outdated-order', 'the waiter');
  between(now() - released, 0, 1_000, 'time to tell the waiter');
  equal((await t.state()).state, 'free', 'state');

  await t.locks.with(t.lock, { order: 4, rollback: 'the new one fails' }, async () => {
    const lock = await t.locks.inspect(t.lock);
    equal([lock.grantedOrder, lock.holders[0].order, lock.holders[0].rollback], [7, 4, 'the new one fails'], 'the lock');
    await t.b.break(t.lock, { reason: 'the test' });
  }).catch((it) => ok(it instanceof LeaseLost, 'the loss'));
  const [last] = (await t.locks.history(t.lock)).entries;
  equal([last.order, last.rollback], [4, 'the new one fails'], 'the history');

  const names = ['-a', '-b', '-c'].map((end) => t.lock + end);
  const group = [names[0], { name: names[1], order: 3 }, { name: names[2], mode: 'shared' }];
  await (await t.locks.acquire(group, { order: 9 })).release();
  const granted = await Promise.all(names.map(async (name) => (await t.locks.inspect(name)).grantedOrder));
  equal(granted, [9, 3, undefined], 'orders of the group');
  equal((await rejected(t.locks.acquire(group, { order: 8 }), LatchgateError)).code, 'outdated-order', 'the group');
  await t.locks.acquire({ name: names[1], order: 3 });
});

define('C39', 'a wait in pieces says how long it has taken', async (t) => {
  const env = { LATCHGATE_LIMITS_MAX_WAIT_MS: '1000' };
  await t.rig('/gateway', { which: 'a', do: 'term' });
  await t.rig('/gateway', { which: 'a', do: 'start', env });
  await t.b.acquire(t.lock);
  await rejected(t.locks.acquire(t.lock, { supersedes: 'deploy', wait: '3s' }), LockHeld);
  // Some requests ask for a shorter wait than the gateway allows, and are refused at once.
  const [one, ...more] = await t.log('POST');
  equal(body(one).waiting_since_ms, undefined, 'the first request');
  ok(more.length >= 3, 'further requests');
  for (const entry of more) {
    const passed = entry.at_ms - one.at_ms;
    between(body(entry).waiting_since_ms, passed - 300, passed + 1_000, 'waiting_since_ms');
  }
  ok(body(more.at(-1)).waiting_since_ms >= 2_000, 'most of the wait at last');
  await rejected(t.locks.acquire(t.lock, { wait: '2s' }), LockHeld);
  const others = (await t.log('POST')).filter((entry) => !body(entry).supersedes);
  ok(others.length >= 2 && others.every((entry) => body(entry).waiting_since_ms === undefined), 'nothing without supersedes');
  await t.fault('status', 1, { method: 'POST', path: `/locks/${t.lock}-o`, status: 429, code: 'too-many-orders', retry_after: 1 });
  await t.locks.acquire(`${t.lock}-o`, { order: 1 });
  const [refused, again] = await t.log('POST', `/locks/${t.lock}-o`);
  between(again.at_ms - refused.answered_at_ms, 1_000, 10_000, 'pause after 429');
});

/** Runs the cases whose numbers are in `only`, or all, one after the other. */
export async function runAll(rigUrl, only) {
  const urls = await rig(rigUrl, '');
  const results = [];
  for (const { id, name, run } of cases) {
    if (only && !only.includes(id)) continue;
    const began = now();
    const t = new Case(rigUrl, urls, id);
    let error;
    try {
      await t.reset();
      await within(110_000, run(t), id);
    } catch (thrown) {
      error = thrown;
    }
    await t.end().catch((failed) => {
      error ??= failed;
    });
    const skipped = error instanceof Skipped ? error.message : undefined;
    results.push({
      id,
      name,
      ok: !error,
      error: error && !skipped ? String(error.stack ?? error) : undefined,
      skipped,
      ms: Math.round(now() - began),
    });
  }
  return results;
}
