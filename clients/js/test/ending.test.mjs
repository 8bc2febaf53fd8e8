// The end of a lease: a lock that was lost is never success, and no end waits for long.

import assert from 'node:assert/strict';
import { test as nodeTest } from 'node:test';

import { GatewayUnreachable, LeaseLost, OutcomeUnknown } from '../src/index.js';
import { afterwards, broken, fails, gateway, group, hangs, lease, methods, problem, results } from './scripted.mjs';

const test = (name, run) => nodeTest(name, { timeout: 60_000 }, run);
const always = (answer) => Array.from({ length: 99 }, () => answer);
const gone = () => problem(410, 'lease-lost', { detail: 'The lease of this token was broken by an operator.' });
const asyncDispose = Symbol.asyncDispose ?? Symbol.for('Symbol.asyncDispose');

/** Every form in which work runs under a lock. */
const forms = {
  with: (locks, names, work) => locks.with(names, work),
  dispose: async (locks, names, work) => {
    const it = await locks.acquire(names);
    await work(it);
    await it[asyncDispose]();
  },
  release: async (locks, names, work) => {
    const it = await locks.acquire(names);
    await work(it);
    await it.release();
  },
  manager: (locks, names, work) => locks.manager().request('x', work),
};

async function inAllForms(expected, ...answers) {
  for (const [form, run] of Object.entries(forms)) {
    const { locks, told } = gateway(...answers);
    const came = await run(locks, 'x', () => {}).catch((error) => error);
    expected(came, form, told);
  }
}

test('a release that finds the lock lost is no success, in any form', async () => {
  await inAllForms((error, form) => {
    const lost = form === 'manager' ? error.cause : error;
    assert.deepEqual([lost instanceof LeaseLost, lost.why], [true, 'broken'], form);
    if (form === 'manager') assert.equal(error.name, 'AbortError');
  }, lease, gone);
});

test('a lost lock after a release without an answer is not known, and no success', async () => {
  await inAllForms((error, form) => {
    const unknown = form === 'manager' ? error.cause : error;
    assert.deepEqual([unknown instanceof OutcomeUnknown, unknown.status], [true, 410], form);
  }, lease, broken, gone);
});

test('a lock whose release reaches no gateway may have been lost, and the log says so', async () => {
  const refused = fails('ECONNREFUSED', 'connect ECONNREFUSED');
  const { locks, told } = gateway(() => lease({ ttl_ms: 2_000, expires_in_ms: 2_000 }), ...always(refused));
  assert.equal(await locks.with('x', () => 'done'), 'done');
  assert.match(told.at(-1), /not known whether x was held/);
});

test('a release of the work itself that finds the lock lost is no success', async () => {
  for (const work of [(it) => void it.release().catch(() => {}), (it) => it.release().catch(() => {}), (it) => it.renew().catch(() => {})]) {
    const { locks, told } = gateway(lease, gone);
    await assert.rejects(locks.with('x', work), { name: 'LeaseLost', why: 'broken' });
    assert.deepEqual(told, []);
  }
});

test('the error of the work counts more than the loss', async () => {
  const mistake = new Error('mine');
  const fail = () => {
    throw mistake;
  };
  for (const form of ['with', 'manager']) {
    const { locks } = gateway(lease, gone);
    assert.equal(await forms[form](locks, 'x', fail).catch((it) => it), mistake, form);
  }
});

test('one lost lock of a group is no success, whatever came of the others, which are released', async () => {
  for (const codes of [['lease-lost', null], [null, 'lease-lost'], ['store-unavailable', 'lease-lost'], ['outcome-unknown', 'lease-lost']]) {
    for (const form of ['with', 'dispose', 'release']) {
      const { locks, asked } = gateway(group, () => results(...codes));
      await assert.rejects(forms[form](locks, ['x', 'y'], () => {}), LeaseLost, `${form} ${codes}`);
      await afterwards(asked, codes[0] && codes[0] !== 'lease-lost' ? 3 : 2);
      assert.equal(methods(asked), codes[0] && codes[0] !== 'lease-lost' ? 'POST DELETE DELETE' : 'POST DELETE', `${codes}`);
    }
  }
});

test('a group of which an unanswered release may have ended a part is not known', async () => {
  for (const answer of [gone, () => results('lease-lost', null), () => results('lease-lost', 'lease-lost')]) {
    const { locks, asked } = gateway(group, broken, answer);
    const it = await locks.acquire(['x', 'y']);
    await assert.rejects(it.release(), OutcomeUnknown);
    // Nothing is left to release.
    await assert.rejects(it.release(), OutcomeUnknown);
    assert.equal(methods(asked), 'POST DELETE DELETE');
    const other = gateway(group, broken, answer);
    await assert.rejects(other.locks.with(['x', 'y'], () => {}), OutcomeUnknown);
  }
});

test('a release that is sent again later is not known either', async () => {
  const bug = () => problem(500, 'internal');
  const { locks } = gateway(group, bug, bug, ...always(() => results('lease-lost', 'lease-lost')));
  const it = await locks.acquire(['x', 'y']);
  await assert.rejects(it.release(), { code: 'internal' });
  await new Promise((resolve) => setTimeout(resolve, 300));
  await assert.rejects(it.release(), OutcomeUnknown);
});

test('no end waits for long for a gateway that does not answer', async () => {
  const within = async (ms, run, what) => {
    const began = performance.now();
    await run();
    const took = performance.now() - began;
    assert(took < ms, `${what}: ${took} ms`);
  };
  const refused = fails('ECONNREFUSED', 'connect ECONNREFUSED');
  await Promise.all([hangs, refused, broken].map(async (fault) => {
    const { locks } = gateway(lease, ...always(fault));
    const it = await locks.acquire('x', { ttl: '30s' });
    await within(7_500, () => assert.rejects(it.release()), 'release');
    await within(100, () => locks.close(), 'close after the release');
    const waits = gateway(...always(fault));
    const waiting = waits.locks.acquire('y', { wait: '1m' }).catch((error) => error);
    await afterwards(waits.asked, 1);
    await within(6_000, () => waits.locks.close(), 'close while an acquire waits');
    assert.equal((await waiting).code, 'closed');
    // A lease that is over, or nearly, is worth less time.
    const short = gateway(() => lease({ ttl_ms: 1_000, expires_in_ms: 1_000 }), ...always(fault));
    const last = await short.locks.acquire('x', { renew: false });
    await within(3_000, () => assert.rejects(last.release()), 'release of a short lease');
  }));
});

test('a gateway that does not answer is told once, after some seconds', async () => {
  const refused = fails('ECONNREFUSED', 'connect ECONNREFUSED');
  const times = (count, answer) => Array.from({ length: count }, () => answer);
  const { locks, told, asked } = gateway(...times(99, refused));
  const error = await locks.acquire('x', { wait: '6s' }).catch((it) => it);
  assert(error instanceof GatewayUnreachable);
  assert.equal(told.length, 1, told.join('\n'));
  assert.match(told[0], /^latchgate: no gateway has answered for [34567] s: http:\/\/gateway:\d+ cannot be reached$/);
  assert(asked.length > 3);
  const later = (answer) => async () => {
    await new Promise((resolve) => setTimeout(resolve, 3_200));
    return answer();
  };
  // Each outage is told, a busy gateway is none, and a proxy is no gateway.
  const busy = () => problem(503, 'store-unavailable');
  const proxy = () => new Response('<h1>Bad Gateway</h1>', { status: 502 });
  const again = gateway(later(refused), busy, later(proxy), proxy, busy, busy, lease);
  await (await again.locks.acquire('x', { wait: '20s' })).release();
  assert.equal(again.told.length, 2, again.told.join('\n'));
  const other = gateway(...times(4, busy), lease);
  await (await other.locks.acquire('x', { wait: '20s' })).release();
  assert.deepEqual(other.told, []);
});
