// The process that acquires the lock, renews it while the job runs, and releases it when post.mjs says so.
//
// main.mjs sends it the API key, or what it takes to get ID tokens. It alone has the token, which it tells nobody. If main.mjs goes away before it
// has said `keep`, whatever killed it, the place in the queue or the lock is given back.

import { createServer } from 'node:net';

import { idTokenFetch } from '../client/src/id-token.js';
import { Latchgate, LeaseLost, OutcomeUnknown } from '../client/src/index.js';
import { enter, writeOutcome } from './folder.mjs';
import { githubToken } from './github-token.mjs';
import { isAlive } from './host.mjs';

/** How long the end of a request is waited for that may have been granted. */
const WITHDRAW_MS = 15_000;
/** How often it looks whether the runner is still there. */
const WATCH_MS = 5_000;

const giveUp = new AbortController();
let acquiring = Promise.resolve();
let lease;
let grantedAt;
let lost;
let kept = false;
let finishing;

/** The requests under way, and whether the last answer leaves nothing to take back. */
const requests = { underWay: 0, settled: true, granted: false };

async function countedFetch(...call) {
  requests.underWay += 1;
  requests.settled = false;
  try {
    const answer = await fetch(...call);
    if (answer.ok && call[1]?.method === 'POST') requests.granted = true;
    // The client asks again after these, and after a grant that comes too late it releases.
    requests.settled = ![200, 201, 409, 429].includes(answer.status) && answer.status < 500;
    return answer;
  } finally {
    requests.underWay -= 1;
  }
}

/** Resolves when the client has taken back, in the background, what may have been granted. */
async function withdrawn() {
  const deadline = performance.now() + WITHDRAW_MS;
  while ((requests.underWay || !requests.settled) && performance.now() < deadline) {
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

/** Sends requests with keys for which it exchanges ID tokens of the job. An exchange leaves nothing to take back. */
function exchangingFetch(url, { keyName, ...job }) {
  const send = (to, init) => (to.endsWith('/session/token') ? fetch(to, init) : countedFetch(to, init));
  return idTokenFetch(url, { token: () => githubToken(job), keyName, fetch: send, onKey: (key) => tell({ key }) });
}

async function acquire({ url, key, oidc, locks, options }) {
  try {
    const client = new Latchgate(url, { key, fetch: oidc ? exchangingFetch(url, oidc) : countedFetch });
    lease = await client.acquire(locks, { ...options, signal: giveUp.signal });
  } catch (error) {
    const mayHold = error instanceof OutcomeUnknown || error.status >= 500 || requests.granted;
    if (giveUp.signal.aborted || mayHold) await withdrawn();
    tell({ failed: error.message, code: error.code, problem: error.problem });
    return;
  }
  grantedAt = performance.now();
  lease.signal.addEventListener('abort', () => {
    if (finishing) return;
    lost = { state: 'lost', message: lease.signal.reason.message, at: new Date().toISOString() };
    writeOutcome(lost);
  });
  const { fencingToken, fencingTokens, slot, slots } = lease;
  tell({ granted: { fencingToken, fencingTokens, slot, slots } });
}

/** Ends everything, once. Resolves to what became of the lock. */
const finish = () => (finishing ??= end());

async function end() {
  giveUp.abort(new Error('cancelled'));
  await acquiring;
  const outcome = lost ?? (lease ? await release() : { state: 'none' });
  writeOutcome(outcome);
  return outcome;
}

async function release() {
  const heldMs = Math.round(performance.now() - grantedAt);
  const { expiresInMs } = lease;
  try {
    await lease.release();
    return { state: 'released', heldMs };
  } catch (error) {
    if (error instanceof LeaseLost) return { state: 'lost', message: error.message, at: new Date().toISOString() };
    // 410: the lease is over, by a copy of the release that got no answer, or before it.
    const state = error.status === 410 ? 'unknown' : 'unreleased';
    return { state, heldMs, message: error.message, expiresInMs };
  }
}

// === main.mjs ===

/** Tells it something, if it is still there. */
function tell(message) {
  if (process.connected) process.send(message, () => {});
}

const cancel = () => finish().then(() => process.exit());

process.on('message', (message) => {
  if (message.ask) {
    watch(message.runner);
    acquiring = acquire(message.ask);
  } else if (message === 'keep') {
    kept = true;
    process.disconnect();
  } else {
    cancel();
  }
});
process.on('disconnect', () => {
  if (!kept) cancel();
});
// It may have gone while this process was loaded, when nobody listened.
if (!process.connected) cancel();

/** A runner that died lets nobody run post.mjs: the lease ends with its TTL, as it does with the machine. */
function watch(runner) {
  // In a container the runner is not seen.
  if (!runner) return;
  setInterval(() => {
    if (kept && !finishing && !isAlive(runner)) process.exit();
  }, WATCH_MS);
}

// === post.mjs ===

const server = createServer((socket) => {
  socket.on('error', () => {});
  socket.once('data', async () => {
    const outcome = await finish();
    socket.end(JSON.stringify(outcome), () => process.exit());
  });
});
server.listen(enter(process.argv[2]), () => tell({ ready: true }));
