// The acquires of one program that wait at one gateway: how many at once, in which order, and for how long.

import assert from 'node:assert/strict';
import { test as nodeTest } from 'node:test';

import { Case, now, rig, sleep, until, within } from './rig.mjs';

const url = process.env.LATCHGATE_RIG;
assert(url, 'LATCHGATE_RIG is not set: run this by clients/rig/rig.py');

const test = (name, run) =>
  nodeTest(name, { timeout: 120_000 }, async () => {
    const t = new Case(url, await rig(url, ''), 'waits');
    await t.reset();
    try {
      await run(t);
    } finally {
      await t.end();
    }
  });

/** A client that counts how many of its requests wait at once. */
function counted(t, at = 'a', options = {}) {
  const count = { now: 0, most: 0, longest: 0, requests: 0 };
  const counts = async (...call) => {
    const ms = JSON.parse(call[1].body ?? '{}').wait_ms ?? 0;
    if (ms > 1) {
      count.requests += 1;
      count.most = Math.max(count.most, (count.now += 1));
      count.longest = Math.max(count.longest, ms);
    }
    try {
      return await fetch(...call);
    } finally {
      if (ms > 1) count.now -= 1;
    }
  };
  return { count, locks: t.client(at, { fetch: counts, ...options }) };
}

const names = (t, count) => Array.from({ length: count }, (_, i) => `${t.lock}-${i}`);

test('four acquires wait at once, of several clients too, and for one lock in order', async (t) => {
  const { locks, count } = counted(t);
  const held = await t.b.acquire(t.lock);
  const order = [];
  const waiting = [];
  for (let i = 0; i < 9; i += 1) {
    const client = i % 2 ? locks : counted(t).locks;
    waiting.push(client.acquire(t.lock, { wait: '1m' }).then((lease) => (order.push(i), lease.release())));
    await sleep(50);
  }
  await sleep(6_000);
  assert.equal((await t.state()).waiterCount, 4);
  await held.release();
  await within(30_000, Promise.all(waiting), 'all grants');
  assert.deepEqual(order, [0, 1, 2, 3, 4, 5, 6, 7, 8]);
  assert(count.most <= 4, `${count.most}`);
});

test('a lock that is free is granted although four acquires wait for others', async (t) => {
  const { locks, count } = counted(t);
  const [free, later, ...taken] = names(t, 6);
  for (const name of [later, ...taken]) await t.b.acquire(name);
  const waiting = taken.map((name) => locks.acquire(name, { wait: Infinity }));
  for (const name of taken) await t.queued(1, name);
  const began = now();
  await within(2_000, locks.acquire(free, { wait: '10s' }), 'the free lock');
  // Four acquires wait at the gateway, so this acquire may have to stand in line first.
  const last = locks.acquire(later, { wait: Infinity });
  await sleep(500);
  await t.b.break(later, { reason: 'the test', all: true });
  await within(10_000, last, 'the lock that becomes free');
  assert(now() - began < 12_000);
  assert(count.most <= 4, `${count.most}`);
  Promise.allSettled(waiting);
  await locks.close();
});

test('acquires that wait in turn keep their positions', async (t) => {
  const { locks, count } = counted(t);
  const all = names(t, 10);
  const held = await Promise.all(all.map((name) => t.b.acquire(name, { ttl: '2m' })));
  const order = [];
  const mine = all.map((name) => locks.acquire(name, { wait: '2m' }).then((lease) => (order.push(`${name} mine`), lease.release())));
  for (const name of all) await until(20_000, async () => (await t.state(name)).waiterCount === 1, name);
  const others = t.client('b', { waits: 99 });
  const theirs = all.map((name) => others.acquire(name, { wait: '2m' }).then((lease) => (order.push(`${name} theirs`), lease.release())));
  for (const name of all) await until(20_000, async () => (await t.state(name)).waiterCount === 2, name);
  await sleep(8_000);
  for (const name of all) assert.equal((await t.state(name)).waiterCount, 2, name);
  for (const lease of held) await lease.release();
  await within(30_000, Promise.all([...mine, ...theirs]), 'all grants');
  for (const name of all) assert(order.indexOf(`${name} mine`) < order.indexOf(`${name} theirs`), order.join('\n'));
  assert.equal(count.most, 4);
  assert(count.requests < 200, `${count.requests}`);
});

test('no piece of a wait is longer than a third of the shortest TTL', async (t) => {
  const { locks, count } = counted(t);
  await t.b.acquire(t.lock);
  await locks.acquire(`${t.lock}-long`, { ttl: '1m' });
  const lease = await locks.acquire(`${t.lock}-short`, { ttl: '3s' });
  await assert.rejects(locks.acquire(t.lock, { wait: '4s' }), { code: 'locked' });
  assert(count.longest <= 1_000, `${count.longest}`);
  lease.check();
  await lease.release();
  await assert.rejects(locks.acquire(t.lock, { wait: '4s' }), { code: 'locked' });
  assert(count.longest > 1_000, `${count.longest}`);
});

test('what ends in line leaves it: an abort, a wait that is over, a client that is closed', async (t) => {
  const { locks } = counted(t);
  const [last, ...taken] = names(t, 5);
  for (const name of [last, ...taken]) await t.b.acquire(name);
  const waiting = taken.map((name) => locks.acquire(name, { wait: Infinity }).catch((it) => it.code));
  for (const name of taken) await t.queued(1, name);
  const began = now();
  await assert.rejects(locks.acquire(last, { wait: '1500ms' }), { code: 'locked' });
  assert(now() - began > 1_490 && now() - began < 3_500, `${now() - began}`);
  await assert.rejects(locks.acquire(last, { wait: Infinity, signal: AbortSignal.timeout(300) }), { name: 'TimeoutError' });
  const closed = locks.acquire(last, { wait: Infinity }).catch((it) => it.code);
  await sleep(100);
  await locks.close();
  assert.deepEqual(await Promise.all([...waiting, closed]), Array.from({ length: 5 }, () => 'closed'));
});
