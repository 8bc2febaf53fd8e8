// Cloudflare Workers: settles the invoices of a customer, never twice at once.

import { Latchgate, LockHeld } from '@latchgate/client';

export default {
  async fetch(request, env, context) {
    // Made for each request: a Worker may not use a connection of another one.
    const owner = request.headers.get('cf-ray') ?? 'worker';
    const locks = new Latchgate(env.LATCHGATE_URL, { key: env.LATCHGATE_KEY, owner });
    const customer = new URL(request.url).searchParams.get('customer');
    const work = locks.with(`invoices:${customer}`, { wait: '10s', ttl: '10s' }, (lease, signal) =>
      settle(env, customer, lease, signal),
    );
    // If the caller hangs up, the work still ends, and the lock is released.
    context.waitUntil(work.catch(() => {}));
    try {
      return Response.json({ state: 'done', fencingToken: await work });
    } catch (error) {
      if (error instanceof LockHeld) return Response.json({ state: 'again' }, { status: 503 });
      return Response.json({ state: 'failed', reason: error.message }, { status: 500 });
    }
  },
};

/** Sends the fencing token with each write: the ledger refuses a smaller one than the largest it has seen. */
async function settle(env, customer, lease, signal) {
  const answer = await fetch(`${env.LEDGER_URL}/settle/${customer}`, {
    method: 'POST',
    headers: { 'fencing-token': String(lease.fencingToken) },
    signal, // Aborted before the lease can be somebody else's.
  });
  if (!answer.ok) throw new Error(`the ledger answered ${answer.status}`);
  return lease.fencingToken;
}
