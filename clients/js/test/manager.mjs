// The behaviours that web-platform-tests checks of Web Locks, for locks of a gateway: see ../WEB-LOCKS.md.
// `manager.test.mjs` runs them in Node; import `runAll` elsewhere.

import { Lock, LockManager } from '../src/manager.js';
import { Case, aborted, between, equal, now, ok, rejected, rig, sleep, until, within } from './rig.mjs';

export const cases = [];
const define = (name, run) => cases.push({ id: `M${String(cases.length + 1).padStart(2, '0')}`, name, run });

const SOON = 300;
const noop = () => {};

/** What became of a promise by now. */
const stateOf = (promise) =>
  Promise.race([
    promise.then(
      () => 'fulfilled',
      () => 'rejected',
    ),
    sleep(SOON).then(() => 'pending'),
  ]);

async function fails(promise, name) {
  const error = await within(10_000, rejected(promise), name);
  equal(error.name, name, 'the error');
  return error;
}

/** A lock that is held until `release` is called. */
async function hold(manager, name, options = {}) {
  let release;
  let granted;
  const acquired = new Promise((resolve) => {
    granted = resolve;
  });
  const done = manager.request(name, options, (lock) => {
    granted(lock);
    return new Promise((resolve) => {
      release = resolve;
    });
  });
  done.catch(() => {});
  const lock = await within(10_000, Promise.race([acquired, done]), 'the grant');
  return { lock, done, release: (value) => (release(value), done) };
}

// === arguments ===

define('a name and a callback are required', async (t) => {
  await fails(t.lm.request(), 'TypeError');
  await fails(t.lm.request(t.lock), 'TypeError');
});

define('the callback is a function', async (t) => {
  for (const callback of [undefined, null, 123, 'text', {}, Promise.resolve()]) {
    await fails(t.lm.request(t.lock, callback), 'TypeError');
    await fails(t.lm.request(t.lock, {}, callback), 'TypeError');
  }
});

define('the mode is exclusive or shared', async (t) => {
  for (const mode of ['foo', null, 0, '']) await fails(t.lm.request(t.lock, { mode }, () => {}), 'TypeError');
  equal(await t.lm.request(t.lock, { mode: undefined }, (lock) => lock.mode), 'exclusive', 'mode');
});

define('options may be null or empty, and nothing else than an object', async (t) => {
  for (const options of [undefined, null, {}]) equal(await t.lm.request(t.lock, options, () => 'ran'), 'ran', 'result');
  await fails(t.lm.request(t.lock, 'text', () => {}), 'TypeError');
});

define('names that begin with a hyphen are not supported', async (t) => {
  await fails(t.lm.request('-', () => {}), 'NotSupportedError');
  await fails(t.lm.request('-foo', () => {}), 'NotSupportedError');
  equal(await t.lm.request('x-anything', () => 'ran'), 'ran', 'result');
});

define('steal and ifAvailable exclude each other', async (t) => {
  await fails(t.lm.request(t.lock, { steal: true, ifAvailable: true }, () => {}), 'NotSupportedError');
});

define('steal is for exclusive locks', async (t) => {
  await fails(t.lm.request(t.lock, { steal: true, mode: 'shared' }, () => {}), 'NotSupportedError');
});

define('signal excludes steal and ifAvailable', async (t) => {
  const { signal } = new AbortController();
  await fails(t.lm.request(t.lock, { signal, steal: true }, () => {}), 'NotSupportedError');
  await fails(t.lm.request(t.lock, { signal, ifAvailable: true }, () => {}), 'NotSupportedError');
});

define('names are converted to strings, and each is a lock of its own', async (t) => {
  const names = ['', 'a', 'A', ' ', 'a b', '/', '.', '..', '~', '~0061', 'ä', '日本', '😀', '\ud800', '\udc00', '\udc00\ud800', '\uffff', 'NUL\0NUL', '{"json": 1}', 'a,b'];
  const held = [];
  for (const name of names) {
    const { lock, release } = await hold(t.lm, name, { ifAvailable: true });
    ok(lock, `${JSON.stringify(name)} is free`);
    equal(lock.name, name, 'name');
    held.push(release);
  }
  const { held: seen } = await t.lm.query();
  const mine = seen.map(({ name }) => name);
  for (const name of names) ok(mine.includes(name), `${JSON.stringify(name)} in the query`);
  await Promise.all(held.map((release) => release()));
  equal(await t.lm.request(17, (lock) => lock.name), '17', 'the name of a number');
});

// === a lock that is held ===

define('the callback is called with the lock, and not synchronously', async (t) => {
  let called = false;
  const done = t.lm.request(t.lock, (lock) => {
    called = true;
    ok(lock instanceof Lock, 'a Lock');
    equal([lock.name, lock.mode], [t.lock, 'exclusive'], 'name and mode');
    ok(Number.isSafeInteger(lock.fencingToken), 'a fencing token');
  });
  ok(!called, 'no call yet');
  await done;
  ok(called, 'a call');
});

define('attributes of the lock cannot be set', async (t) => {
  await t.lm.request(t.lock, { mode: 'shared' }, (lock) => {
    rejected(() => {
      lock.name = 'other';
    });
    equal([lock.name, lock.mode], [t.lock, 'shared'], 'name and mode');
  });
});

define('the lock is held until the promise of the callback settles', async (t) => {
  const { done, release } = await hold(t.lm, t.lock);
  equal([(await t.state()).state, await stateOf(done)], ['held', 'pending'], 'state');
  equal(await release('result'), 'result', 'result');
  equal((await t.state()).state, 'free', 'state after the release');
});

define('the result of the callback is the result of the request', async (t) => {
  equal(await t.lm.request(t.lock, () => 123), 123, 'result');
  equal(await t.lm.request(t.lock, async () => 456), 456, 'result of a promise');
});

define('a callback that throws or rejects releases, and rejects the request', async (t) => {
  const mistake = new Error('mine');
  const thrown = t.lm.request(t.lock, () => {
    throw mistake;
  });
  ok((await rejected(thrown)) === mistake, 'the error thrown');
  ok((await rejected(t.lm.request(t.lock, () => Promise.reject(mistake)))) === mistake, 'the error of the promise');
  equal((await t.state()).state, 'free', 'state');
  const thenable = { then: () => ok(false, 'no call of then') };
  const thrownThenable = t.lm.request(t.lock, () => {
    throw thenable;
  });
  // An async function would call it.
  await thrownThenable.then(() => ok(false, 'a rejection'), (error) => ok(error === thenable, 'the thenable'));
});

define('the lock is held until the promise of the callback rejects', async (t) => {
  let fail;
  const done = t.lm.request(t.lock, () => new Promise((_, reject) => {
    fail = reject;
  }));
  await until(10_000, () => fail, 'the grant');
  equal(await stateOf(done), 'pending', 'the request');
  equal((await t.state()).state, 'held', 'state');
  fail(new Error('mine'));
  equal((await rejected(done)).message, 'mine', 'the error');
  equal((await t.state()).state, 'free', 'state after the rejection');
});

define('a lock that is held keeps the same manager from acquiring it', async (t) => {
  const { release } = await hold(t.lm, t.lock);
  const second = t.lm.request(t.lock, () => 'second');
  equal(await stateOf(second), 'pending', 'the second');
  await release();
  equal(await second, 'second', 'result');
});

// === modes ===

define('exclusive requests of one name run one after the other, in order', async (t) => {
  const ran = [];
  let inside = 0;
  const request = (n) =>
    t.lm.request(t.lock, async () => {
      ok(++inside === 1, 'nobody else inside');
      await sleep(10);
      ran.push(n);
      inside -= 1;
    });
  await Promise.all([1, 2, 3, 4, 5].map(request));
  equal(ran, [1, 2, 3, 4, 5], 'order');
});

define('exclusive requests of different names do not wait for each other', async (t) => {
  const first = await hold(t.lm, t.lock);
  equal(await t.lm.request(`${t.lock}:2`, () => 'ran'), 'ran', 'result');
  await first.release();
});

define('shared requests run together', async (t) => {
  const one = await hold(t.lm, t.lock, { mode: 'shared' });
  const two = await hold(t.other, t.lock, { mode: 'shared' });
  const three = await hold(t.lm, t.lock, { mode: 'shared' });
  await Promise.all([one, two, three].map(({ release }) => release()));
});

define('an exclusive request waits for the shared, and shared ones that come later for it', async (t) => {
  const ran = [];
  const one = await hold(t.lm, t.lock, { mode: 'shared' });
  const writer = t.lm.request(t.lock, () => ran.push('writer'));
  await t.queued(1);
  const reader = t.lm.request(t.lock, { mode: 'shared' }, () => ran.push('reader'));
  equal(await stateOf(reader), 'pending', 'the later reader');
  await one.release();
  await Promise.all([writer, reader]);
  equal(ran, ['writer', 'reader'], 'order');
});

define('those who share a lock run together once an exclusive one is released', async (t) => {
  const { release } = await hold(t.lm, t.lock);
  const inside = [];
  let go;
  const both = new Promise((resolve) => {
    go = resolve;
  });
  const readers = [1, 2].map((reader) =>
    t.lm.request(t.lock, { mode: 'shared' }, () => {
      inside.push(reader);
      if (inside.length === 2) go();
      return both;
    }),
  );
  equal(await stateOf(readers[0]), 'pending', 'the first reader');
  equal(inside, [], 'readers inside');
  await release();
  await within(10_000, Promise.all(readers), 'both readers');
  equal(inside, [1, 2], 'order');
});

define('managers of other clients exclude each other, and those who wait are served in order', async (t) => {
  const ran = [];
  const { release } = await hold(t.lm, t.lock);
  const one = t.other.request(t.lock, () => ran.push(1));
  await t.queued(1);
  const two = t.lm.request(t.lock, () => ran.push(2));
  await t.queued(2);
  await release();
  await Promise.all([one, two]);
  equal(ran, [1, 2], 'order');
});

// === ifAvailable ===

define('ifAvailable is granted a free lock', async (t) => {
  equal(await t.lm.request(t.lock, { ifAvailable: true }, (lock) => lock.name), t.lock, 'name');
});

define('ifAvailable gets null for a held lock, and its result counts', async (t) => {
  const { release } = await hold(t.other, t.lock);
  const options = { ifAvailable: true };
  equal(await t.lm.request(t.lock, options, (lock) => [lock]), [null], 'lock');
  equal(await t.lm.request(t.lock, options, async () => 123), 123, 'result');
  const mistake = new Error('mine');
  ok((await rejected(t.lm.request(t.lock, options, () => Promise.reject(mistake)))) === mistake, 'the error');
  equal((await t.state()).waiterCount, 0, 'waiters');
  await release();
});

define('ifAvailable rejects if its callback throws, with a lock and without', async (t) => {
  const mistake = new Error('mine');
  const fail = () => {
    throw mistake;
  };
  ok((await rejected(t.lm.request(t.lock, { ifAvailable: true }, fail))) === mistake, 'the error with a lock');
  const { release } = await hold(t.lm, t.lock);
  ok((await rejected(t.lm.request(t.lock, { ifAvailable: true }, fail))) === mistake, 'the error without');
  await release();
});

define('ifAvailable is not kept by a lock of another name', async (t) => {
  const { release } = await hold(t.lm, `${t.lock}:2`);
  equal(await t.lm.request(t.lock, { ifAvailable: true }, (lock) => lock.name), t.lock, 'name');
  await release();
});

define('ifAvailable is granted a lock once its release is done', async (t) => {
  for (let i = 0; i < 3; i += 1) {
    equal(await t.lm.request(t.lock, { ifAvailable: true }, (lock) => lock.name), t.lock, 'name');
  }
});

define('ifAvailable gets null behind a request that was made before', async (t) => {
  let release;
  const first = t.lm.request(t.lock, () => new Promise((resolve) => {
    release = resolve;
  }));
  equal(await t.lm.request(t.lock, { ifAvailable: true }, (lock) => [lock]), [null], 'lock');
  await until(20_000, () => release, 'the first is granted');
  release();
  await first;
});

define('ifAvailable shares a lock that is shared', async (t) => {
  const { release } = await hold(t.other, t.lock, { mode: 'shared' });
  equal(await t.lm.request(t.lock, { ifAvailable: true, mode: 'shared' }, (lock) => lock.mode), 'shared', 'mode');
  equal(await t.lm.request(t.lock, { ifAvailable: true }, (lock) => [lock]), [null], 'exclusive lock');
  await release();
  const exclusive = await hold(t.other, t.lock);
  equal(await t.lm.request(t.lock, { ifAvailable: true, mode: 'shared' }, (lock) => [lock]), [null], 'shared lock');
  await exclusive.release();
});

// === steal ===

define('a free lock can be stolen', async (t) => {
  equal(await t.lm.request(t.lock, { steal: true }, (lock) => lock.mode), 'exclusive', 'mode');
});

define('who is stolen from gets an AbortError, and the thief the lock', async (t) => {
  const { lock, done } = await hold(t.lm, t.lock);
  const thief = await hold(t.lm, t.lock, { steal: true });
  await fails(done, 'AbortError');
  ok(lock.signal.aborted, 'the signal of the lock');
  ok(thief.lock.fencingToken > lock.fencingToken, 'a larger fencing token');
  equal(await thief.release('result'), 'result', 'result');
});

define('who is stolen from at another client learns it by a renewal', async (t) => {
  const { lock, done } = await hold(t.short, t.lock);
  const thief = await hold(t.lm, t.lock, { steal: true });
  await fails(done, 'AbortError');
  ok(lock.signal.aborted, 'the signal of the lock');
  await thief.release();
});

define('all who share a lock are stolen from', async (t) => {
  const readers = [await hold(t.lm, t.lock, { mode: 'shared' }), await hold(t.lm, t.lock, { mode: 'shared' })];
  const thief = await hold(t.lm, t.lock, { steal: true });
  for (const { done } of readers) await fails(done, 'AbortError');
  await thief.release();
});

define('a thief can be stolen from', async (t) => {
  const first = await hold(t.lm, t.lock, { steal: true });
  const second = await hold(t.lm, t.lock, { steal: true });
  await fails(first.done, 'AbortError');
  equal(await stateOf(second.done), 'pending', 'the second');
  await second.release();
});

define('a callback that ends after the theft changes nothing', async (t) => {
  const first = await hold(t.lm, t.lock);
  const thief = await hold(t.lm, t.lock, { steal: true });
  await fails(first.done, 'AbortError');
  await rejected(first.release('late'));
  const { holders } = await t.state();
  equal(holders.map(({ fencingToken }) => fencingToken), [thief.lock.fencingToken], 'holders');
  equal(await thief.release('result'), 'result', 'result');
});

define('who waits is served after the thief', async (t) => {
  const ran = [];
  const { done } = await hold(t.lm, t.lock);
  const waiting = t.lm.request(t.lock, () => ran.push('waiting'));
  await t.queued(1);
  const thief = await hold(t.lm, t.lock, { steal: true });
  await fails(done, 'AbortError');
  equal(await stateOf(waiting), 'pending', 'the one that waits');
  ran.push('thief');
  await thief.release();
  await waiting;
  equal(ran, ['thief', 'waiting'], 'order');
});

// === signal ===

define('the signal is an AbortSignal', async (t) => {
  for (const signal of ['string', 12.34, null, {}, Symbol.iterator, () => {}, self]) {
    await fails(t.lm.request(t.lock, { signal }, () => {}), 'TypeError');
  }
});

define('an aborted signal rejects with its reason at once', async (t) => {
  const controller = new AbortController();
  controller.abort();
  await fails(t.lm.request(t.lock, { signal: controller.signal }, () => ok(false, 'no call')), 'AbortError');
  const reason = new Error('my reason');
  const error = await rejected(t.lm.request(t.lock, { signal: AbortSignal.abort(reason) }, () => {}));
  ok(error === reason, 'the reason');
});

define('an abort during the wait rejects, and gives the place up', async (t) => {
  const { release } = await hold(t.other, t.lock);
  const controller = new AbortController();
  const request = t.lm.request(t.lock, { signal: controller.signal }, () => ok(false, 'no call'));
  await t.queued(1);
  controller.abort('reason');
  equal(await rejected(request), 'reason', 'the reason');
  await t.queued(0);
  await release();
  await t.free();
});

define('an abort before the turn at this client concerns this request alone', async (t) => {
  const { release } = await hold(t.lm, t.lock);
  const ran = [];
  const controller = new AbortController();
  const one = t.lm.request(t.lock, () => ran.push(1));
  const two = t.lm.request(t.lock, { signal: controller.signal }, () => ran.push(2));
  const three = t.lm.request(t.lock, () => ran.push(3));
  controller.abort();
  await fails(two, 'AbortError');
  await release();
  await Promise.all([one, three]);
  equal(ran, [1, 3], 'those that ran');
});

define('an abort right after the request prevents the call', async (t) => {
  const controller = new AbortController();
  const request = t.lm.request(t.lock, { signal: controller.signal }, () => ok(false, 'no call'));
  controller.abort();
  await fails(request, 'AbortError');
  await sleep(SOON);
  await t.free();
});

define('an abort after the grant changes nothing', async (t) => {
  const controller = new AbortController();
  const { lock, release } = await hold(t.lm, t.lock, { signal: controller.signal });
  controller.abort();
  equal([lock.signal.aborted, await release('result')], [false, 'result'], 'signal and result');
});

define('an abort after the release changes nothing', async (t) => {
  const controller = new AbortController();
  const { done, release } = await hold(t.lm, t.lock, { signal: controller.signal });
  await release('result');
  controller.abort();
  equal(await done, 'result', 'result');
});

define('an abort after some time rejects with the reason of the time-out', async (t) => {
  const { release } = await hold(t.other, t.lock);
  const controller = new AbortController();
  setTimeout(() => controller.abort(), SOON);
  await fails(t.lm.request(t.lock, { signal: controller.signal }, () => ok(false, 'no call')), 'AbortError');
  await release();
});

define('a signal that is not aborted has no effect', async (t) => {
  const { signal } = new AbortController();
  equal(await t.lm.request(t.lock, { signal }, () => 'ran'), 'ran', 'result');
});

// === query ===

define('query shows who holds and who waits', async (t) => {
  const shared = await hold(t.lm, `${t.lock}:shared`, { mode: 'shared' });
  const { release } = await hold(t.lm, t.lock);
  const requests = ['exclusive', 'shared', 'shared'].map((mode) => t.lm.request(t.lock, { mode }, () => {}));
  await t.queued(1);
  const { held, pending } = await t.mine();
  equal(held.map(({ name, mode }) => [name, mode]).sort(), [[t.lock, 'exclusive'], [`${t.lock}:shared`, 'shared']], 'held');
  equal(pending.map(({ name, mode }) => [name, mode]), requests.map((_, i) => [t.lock, i ? 'shared' : 'exclusive']), 'pending');
  ok([...held, ...pending].every(({ clientId }) => clientId === held[0].clientId), 'one client');
  await Promise.all([release(), shared.release()]);
  await Promise.all(requests);
});

define('query tells clients apart', async (t) => {
  const { release } = await hold(t.lm, t.lock);
  const waiting = t.other.request(t.lock, () => {});
  await t.queued(1);
  const { held, pending } = await t.mine();
  ok(held[0].clientId && pending[0].clientId && held[0].clientId !== pending[0].clientId, 'two clients');
  await release();
  await waiting;
});

define('query shows each of those who share a lock', async (t) => {
  const shared = [await hold(t.lm, t.lock, { mode: 'shared' }), await hold(t.other, t.lock, { mode: 'shared' })];
  const { held, pending } = await t.mine();
  equal(held.map(({ name, mode }) => [name, mode]), shared.map(() => [t.lock, 'shared']), 'held');
  equal(pending, [], 'pending');
  await Promise.all(shared.map(({ release }) => release()));
});

define('query shows a deadlock', async (t) => {
  const [one, two] = [`${t.lock}:1`, `${t.lock}:2`];
  const holds = [await hold(t.lm, one), await hold(t.other, two)];
  const controller = new AbortController();
  const { signal } = controller;
  const waiting = [t.lm.request(two, { signal }, () => {}), t.other.request(one, { signal }, () => {})];
  await t.queued(1, one);
  await t.queued(1, two);
  const { held, pending } = await t.mine();
  const clientOf = (list, lock) => list.find(({ name }) => name === lock)?.clientId;
  equal([clientOf(held, one), clientOf(held, two)], [clientOf(pending, two), clientOf(pending, one)], 'who holds and who waits');
  controller.abort();
  for (const request of waiting) await fails(request, 'AbortError');
  await Promise.all(holds.map(({ release }) => release()));
});

define('query is empty when nothing is held', async (t) => {
  await t.lm.request(t.lock, () => {});
  equal(await t.mine(), { held: [], pending: [] }, 'snapshot');
});

// === what a lock of a gateway adds ===

define('a lock that is lost rejects the request with an AbortError that says why', async (t) => {
  const { lock, done } = await hold(t.short, t.lock);
  await t.b.break(t.lock, { reason: 'test', fencingToken: lock.fencingToken });
  await within(20_000, aborted(lock.signal), 'the signal');
  const error = await fails(done, 'AbortError');
  ok(['lost', 'broken'].includes(error.cause?.why), 'the cause');
});

define('what is done after the lock was lost is no success, also if nothing else ran meanwhile', async (t) => {
  const request = t.short.request(t.lock, () => {
    for (const end = now() + 2_500; now() < end; );
    return 'done';
  });
  equal((await fails(request, 'AbortError')).cause?.why, 'expired', 'the cause');
});

define('a callback that ends late does not make the manager forget who holds the lock since', async (t) => {
  const first = await hold(t.lm, t.lock);
  await t.lm.request(t.lock, { steal: true }, () => {});
  const second = await hold(t.lm, t.lock);
  await rejected(first.release());
  await sleep(SOON);
  const thief = await hold(t.lm, t.lock, { steal: true });
  // The manager knows it at once: no renewal is due for seconds.
  await within(6_000, fails(second.done, 'AbortError'), 'the loss');
  await thief.release();
});

define('a thief comes before those who wait at other clients', async (t) => {
  const { lock, done } = await hold(t.short, t.lock);
  const waiting = t.other.request(t.lock, (next) => aborted(next.signal));
  waiting.catch(() => {});
  await t.queued(1);
  const thief = await hold(t.lm, t.lock, { steal: true });
  await fails(done, 'AbortError');
  ok(thief.lock.fencingToken > lock.fencingToken, 'a larger fencing token');
  const { holders } = await t.state();
  equal(holders.map(({ fencingToken }) => fencingToken), [thief.lock.fencingToken], 'holders');
  await thief.release();
});

define('a steal that the gateway refuses is rejected, and what waits goes on', async (t) => {
  const { done, release } = await hold(t.lm, t.lock);
  await t.fault('status', 100, { method: 'POST', path: `/locks/${t.lock}/break`, status: 403, code: 'forbidden' });
  const waiting = t.lm.request(t.lock, () => 'ran');
  const error = await rejected(t.lm.request(t.lock, { steal: true }, () => ok(false, 'no call')));
  equal([error.code, await stateOf(done)], ['forbidden', 'pending'], 'the error, and the lock');
  await release();
  equal(await waiting, 'ran', 'the one that waits');
});

define('the manager of a client is the same', async (t) => {
  const manager = t.locks.manager();
  equal(await manager.request(t.lock, (lock) => lock.name), t.lock, 'name');
  await fails(manager.request(t.lock), 'TypeError');
  ok(Array.isArray((await manager.query()).held), 'a snapshot');
});

define('a lock that is found lost by its release is no success', async (t) => {
  const done = fails(
    t.lm.request(t.lock, async () => {
      await t.b.break(t.lock, { reason: 'the test', all: true });
      return 'done';
    }),
    'AbortError',
  );
  equal((await done).cause.why, 'broken', 'why');
});

define('ten that wait leave a connection for the renewal, as browsers have six', async (t) => {
  // More than six requests at once stand in line, as in a browser.
  const line = [];
  let underWay = 0;
  const done = () => {
    underWay -= 1;
    line.shift()?.();
  };
  const limited = async (...call) => {
    if (underWay >= 6) await new Promise((resolve) => line.push(resolve));
    underWay += 1;
    try {
      return await fetch(...call);
    } finally {
      done();
    }
  };
  const locks = t.client('proxy', { fetch: limited });
  const names = Array.from({ length: 10 }, (_, i) => `${t.lock}-${i}`);
  for (const name of names) await t.b.acquire(name);
  const lease = await locks.acquire(t.lock, { ttl: '3s' });
  const manager = new LockManager(locks);
  const waiting = names.map((name, i) => (i % 2 ? manager.request(name, noop) : locks.acquire(name, { wait: Infinity })));
  for (const one of waiting) one.catch(noop);
  await sleep(9_000);
  lease.check();
  equal((await t.state()).holders[0]?.fencingToken, lease.fencingToken, 'holder');
  const asked = (await t.log('POST')).filter(({ body }) => (typeof body === 'string' ? JSON.parse(body) : body).wait_ms > 1);
  const most = Math.max(...asked.map(({ at_ms }) => asked.filter((it) => it.at_ms <= at_ms && !(it.answered_at_ms <= at_ms)).length));
  between(most, 4, 4, 'waits at once');
  await locks.close();
});

class ManagerCase extends Case {
  constructor(...args) {
    super(...args);
    this.lm = new LockManager(this.locks);
    this.other = new LockManager(this.b);
    // One with leases that are renewed often.
    const acquire = (name, options) => this.a.acquire(name, { ...options, ttl: '1500ms' });
    this.short = new LockManager({ acquire, break: (...rest) => this.a.break(...rest) });
  }

  /** What the query says of the locks of this case. */
  async mine() {
    const isMine = ({ name }) => name.startsWith(this.lock);
    const { held, pending } = await this.lm.query();
    return { held: held.filter(isMine), pending: pending.filter(isMine) };
  }
}

export async function runAll(rigUrl, only) {
  globalThis.self ??= globalThis;
  const urls = await rig(rigUrl, '');
  const results = [];
  for (const { id, name, run } of cases) {
    if (only && !only.includes(id)) continue;
    const began = now();
    const t = new ManagerCase(rigUrl, urls, id);
    let error;
    try {
      await t.reset();
      await within(60_000, run(t), id);
    } catch (thrown) {
      error = thrown;
    }
    await t.end().catch((failed) => {
      error ??= failed;
    });
    results.push({ id, name, ok: !error, error: error && String(error.stack ?? error), ms: Math.round(now() - began) });
  }
  return results;
}

