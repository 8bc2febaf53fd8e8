// What a user writes, checked by `tsc --strict`.

import { GatewayUnreachable, Latchgate, LatchgateError, LeaseLost, LockHeld, OutcomeUnknown, type Lease } from '@latchgate/client';
import { idTokenFetch } from '@latchgate/client/id-token';
import { LockManager } from '@latchgate/client/manager';

const locks = new Latchgate('https://locks.example.com', {
  key: 'secret',
  owner: 'usage',
  waits: 100,
  warn: (text) => console.log(text.length),
  onReleaseRequested: ({ by, withinMs }, lease) => console.log(by, withinMs, lease.name),
});

export const ofJob = new Latchgate('https://locks.example.com', {
  fetch: idTokenFetch('https://locks.example.com', { token: async () => 'eyJ..', keyName: 'ci', onKey: (key) => console.log(key.length) }),
});
export const ofEnvironment = new Latchgate('https://locks.example.com', { fetch: idTokenFetch(new URL('https://locks.example.com')) });

export const fence: number = await locks.with('deploy', { wait: '10m', ttl: 60_000 }, async (lease, signal) => {
  signal.throwIfAborted();
  lease.check();
  return lease.fencingToken;
});
export const text: string = await locks.with(['a', 'b'], () => 'done');
export const modes: Readonly<Record<string, 'exclusive' | 'shared'>> = await locks.with(
  ['a', { name: 'b', limit: 20 }, { name: 'c', mode: 'shared' }, { name: 'd', order: 7 }],
  { order: 41_873, rollback: 'the new one fails' },
  (lease) => lease.modes,
);

const lease: Lease = await locks.acquire('gpus', { mode: 'shared', limit: 8, wait: Infinity, signal: AbortSignal.timeout(1_000) });
export const slot: number | undefined = lease.slot;
export const all: Readonly<Record<string, number>> = lease.fencingTokens;
await lease.renew('2m');
await lease.release();
{
  await using held = await locks.acquire('deploy', { renew: false, maxHold: '1h', minHold: '10m', reserve: { until: '2026-12-04T18:00:00Z', reason: 'x' }, metadata: { branch: 'main' }, wait: false });
  console.log(held.expiresInMs, (await held.releaseRequested).reason);
}

try {
  await locks.acquire('deploy');
} catch (error) {
  if (error instanceof LockHeld) console.log(error.holders.map((holder) => holder.owner));
  else if (error instanceof LeaseLost) console.log(error.why === 'expired');
  else if (error instanceof OutcomeUnknown || error instanceof GatewayUnreachable) console.log(error.message);
  else if (error instanceof LatchgateError) {
    const code: string = error.code;
    console.log(error.status, code, error.problem?.requestId, error.problem?.orderGranted?.owner);
  }
}

const lock = await locks.inspect('deploy');
console.log(lock.state, lock.holders[0]?.fencingToken, lock.waiters.length);
console.log(lock.grantedOrder, lock.orderGranted?.at, lock.holders[0]?.rollback);
const past = await locks.history('deploy');
console.log(past.entries.map(({ owner, ended, endedBy }) => [owner, ended, endedBy]), past.shorterLeases?.count);
await locks.check('deploy', 1);
const checked: void = await locks.check('deploy', fence, { forMs: 30_000 });
console.log(checked);
let cursor: string | undefined;
do {
  const page = await locks.list({ prefix: 'deploy:', cursor });
  cursor = page.nextCursor ?? undefined;
} while (cursor);
await locks.break('deploy', { reason: 'the runner is gone', fencingToken: 1, grace: '30s' });
export const answer: number = await locks.manager().request('deploy', { mode: 'shared', ifAvailable: true }, async (it) => (it ? 1 : 0));

const manager = new LockManager(locks, { owner: 'usage' });
export const names: string[] = (await manager.query()).held.map(({ name }) => name);

// @ts-expect-error: the TTL is an option of the acquire
await locks.acquire({ name: 'deploy', ttl: '1m' });

// @ts-expect-error: no such unit
await locks.acquire('deploy', { ttl: '3w' });
