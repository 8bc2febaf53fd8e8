// A plain Node handler, as most platforms take one: settles the invoices of a customer, never twice at once.
//
//   import { createServer } from 'node:http';
//   createServer(handler).listen(8080);

import { Latchgate, LockHeld } from '@latchgate/client';

const locks = new Latchgate(process.env.LATCHGATE_URL, { key: process.env.LATCHGATE_KEY });

export async function handler(request, response) {
  const customer = new URL(request.url, 'http://localhost').searchParams.get('customer');
  // A caller that hangs up while it waits gives its place up.
  const gone = new AbortController();
  response.on('close', () => gone.abort());
  try {
    const fencingToken = await locks.with(
      `invoices:${customer}`,
      { wait: '10s', ttl: '10s', signal: gone.signal },
      (lease, signal) => settle(customer, lease, signal),
    );
    answer(response, 200, { state: 'done', fencingToken });
  } catch (error) {
    if (gone.signal.aborted) return;
    if (error instanceof LockHeld) answer(response, 503, { state: 'again' });
    else answer(response, 500, { state: 'failed', reason: error.message });
  }
}

/** Sends the fencing token with each write: the ledger refuses a smaller one than the largest it has seen. */
async function settle(customer, lease, signal) {
  const answer = await fetch(`${process.env.LEDGER_URL}/settle/${customer}`, {
    method: 'POST',
    headers: { 'fencing-token': String(lease.fencingToken) },
    signal, // Aborted before the lease can be somebody else's.
  });
  if (!answer.ok) throw new Error(`the ledger answered ${answer.status}`);
  return lease.fencingToken;
}

function answer(response, status, body) {
  response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
}
