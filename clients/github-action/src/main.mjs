// Acquires the lock before the next step of the job, and leaves a process behind that renews it.

import { fork } from 'node:child_process';
import { closeSync, openSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { Latchgate } from '../client/src/index.js';
import { makeFolder, readLog } from './folder.mjs';
import { findRunner } from './host.mjs';
import { input, readInputs, skipsIfOutdated } from './inputs.mjs';
import { annotate, log, mask, saveState, setOutput } from './runner.mjs';

/** The runner kills this process 10 s after the first signal. The renewing process goes on by itself. */
const CANCEL_MS = 5_000;
/** When to say who holds the lock, and how often to look whether somebody else does. */
const FIRST_LOOK_MS = 1_000;
const NEXT_LOOK_MS = 15_000;
/** How long to ask what became of the job with the higher order. */
const WINNER_MS = 10_000;
/** What the renewing process needs. The rest of the environment has secrets in it, and NODE_DEBUG would log some. */
const PASSED_ON = /^(PATH|SystemRoot|RUNNER_TRACKING_ID|NODE_(?!DEBUG|AUTH).*|SSL_CERT_.*|(https?|no)_proxy)$/i;

function startRenewer(folder) {
  const file = openSync(join(folder, 'log'), 'a', 0o600);
  try {
    return fork(fileURLToPath(new URL('renewer.mjs', import.meta.url)), [folder], {
      // In a session of its own, with no pipe that the runner would wait for.
      detached: true,
      stdio: ['ignore', file, file, 'ipc'],
      env: Object.fromEntries(Object.entries(process.env).filter(([name]) => PASSED_ON.test(name))),
    });
  } finally {
    closeSync(file);
  }
}

/** Resolves to what the renewing process says, or to `{ failed }` or `{ cancelled }`. */
function request(renewer, folder, inputs, runner) {
  return new Promise((resolve) => {
    let cancelled;
    for (const [signal, code] of [['SIGINT', 130], ['SIGTERM', 143], ['SIGHUP', 129]]) {
      process.on(signal, () => {
        if (cancelled) return;
        cancelled = code;
        log('cancelled: the wait for the lock ends');
        if (renewer.connected) renewer.send('cancel', () => {});
        setTimeout(resolve, CANCEL_MS, { cancelled }).unref();
      });
    }
    renewer.on('message', (message) => {
      if (message.ready) {
        // Not sooner: from now on post.mjs finds somebody to talk to.
        try {
          saveState('folder', folder);
        } catch (error) {
          resolve({ failed: error.message });
          return;
        }
        renewer.send({ ask: inputs, runner }, () => {});
      } else if (message.key) {
        // The job's ID token was exchanged for it. It is masked before anybody could print it.
        mask(message.key);
        inputs.key = message.key;
      } else if (!cancelled) {
        resolve(message);
      }
    });
    renewer.on('error', (error) => resolve({ failed: error.message }));
    renewer.on('exit', (code, signal) => {
      const failed = `the process that renews the lock ended (${signal ?? code}). ${readLog(folder)}`;
      resolve(cancelled ? { cancelled } : { failed });
    });
  });
}

/** Says who holds the lock, as long as this key may know it. */
async function showHolders(inputs, signal) {
  const { url, names, oidc, options: { owner } } = inputs;
  let before;
  for (let pause = FIRST_LOOK_MS; ; pause = NEXT_LOOK_MS) {
    await new Promise((resolve) => setTimeout(resolve, pause).unref());
    if (signal.aborted) return;
    const { key } = inputs;
    if (oidc && !key) continue;
    let text;
    try {
      text = await describe(new Latchgate(url, { key, warn: log }), names, owner);
    } catch (error) {
      // A key may have ended that was exchanged for a new one meanwhile.
      if (error.status === 403 || (error.status === 401 && inputs.key === key)) return;
      text = `waiting for ${names.join(', ')}: ${error.message}`;
    }
    if (signal.aborted) return;
    if (text && text !== before) log(text);
    before = text;
  }
}

async function describe(locks, names, owner) {
  for (const name of names) {
    const { state, holders, waiterCount } = await locks.inspect(name);
    // The lease of this job, which only keeps the lock until the job has the others too.
    // The gateway keeps the named owner in the metadata if the key declares another.
    const own = holders?.find((holder) => [holder.owner, holder.metadata?.said_owner].includes(owner) && holder.waitsFor);
    if (own && own.waitsFor.name === null) return `have ${name}, waiting for a lock that this key may not view`;
    if (own && names.includes(own.waitsFor.name)) return `have ${name}, waiting for ${own.waitsFor.name}: ${holding(own.waitsFor.holders)}`;
    if (holders?.[0]?.reservation) return `waiting for ${name}: ${holding(holders)}, ${waiterCount} in the queue`;
    if (state === 'resting') return `waiting for ${name}: it rests after the last job, ${waiterCount} in the queue`;
    if (state !== 'free') return `waiting for ${name}: ${holding(holders)}, ${waiterCount} in the queue`;
  }
  return undefined;
}

function holding(holders = []) {
  const reservation = holders[0]?.reservation;
  if (holders.length === 0) return 'nobody holds it now';
  const by = reservation?.reservedBy ?? holders[0].owner;
  if (reservation) return `reserved${by ? ` by ${by}` : ''} until ${reservation.until} because ${reservation.reason}`;
  return `held by ${holders.map(({ owner }) => owner ?? 'somebody').join(', ')}`;
}

/** What became of the job that was granted the lock for this order, as long as this key may know it. */
async function endOfWinner({ url, key, names }, { name = names[0], grantedOrder }) {
  const { entries } = await new Latchgate(url, { key, warn: log }).history(name);
  const winner = entries.find(({ order, rollback }) => order === grantedOrder && rollback === undefined);
  if (winner?.ended) return `That lease ended at ${winner.endedAt} (${winner.ended}). `;
  return winner && !winner.endedAtLatest ? 'That lease has not ended yet. ' : '';
}

/** Says which newer work the lock was granted for, and how to go back. */
async function describeOutdated({ failed, problem }, inputs) {
  const late = new Promise((resolve) => setTimeout(resolve, WINNER_MS, '').unref());
  const end = await Promise.race([endOfWinner(inputs, problem).catch(() => ''), late]);
  return `${inputs.names.join(', ')}: ${failed} ${end}To go back to this run on purpose, run it with the input rollback and a reason.`;
}

const refused = ({ failed, code }, names) =>
  code === 'locked' ? `${failed}, and was not released within the wait` : `${names.join(', ')}: ${failed}`;

async function main() {
  const secret = input('key');
  if (secret) mask(secret);
  const inputs = readInputs();
  const folder = makeFolder();
  const renewer = startRenewer(folder);
  const shown = new AbortController();
  const began = performance.now();
  const runner = findRunner();
  const answered = request(renewer, folder, inputs, runner);
  showHolders(inputs, shown.signal).catch(() => {});
  const answer = await answered;
  shown.abort();
  if (answer.cancelled) return answer.cancelled;
  if (answer.code === 'outdated-order') {
    const skips = skipsIfOutdated();
    setOutput('outdated', true);
    const text = await describeOutdated(answer, inputs);
    annotate(skips ? 'warning' : 'error', skips ? `${text} The job goes on without the lock, so its later steps must be skipped (output outdated).` : text);
    return skips ? 0 : 1;
  }
  if (!answer.granted) {
    annotate('error', refused(answer, inputs.names));
    return 1;
  }
  setOutput('outdated', false);
  const { fencingToken, fencingTokens, slot, slots } = answer.granted;
  setOutput('fencing-token', fencingToken);
  setOutput('fencing-tokens', JSON.stringify(fencingTokens));
  if (Number.isInteger(slot)) setOutput('slot', slot);
  if (Object.keys(slots).length) setOutput('slots', JSON.stringify(slots));
  await new Promise((resolve, reject) => renewer.send('keep', (error) => (error ? reject(error) : resolve())));
  const seconds = Math.round((performance.now() - began) / 1000);
  log(`holding ${inputs.names.join(', ')} after ${seconds} s, fencing token ${fencingToken}`);
  if (!runner) log(`the runner is outside of this container: if it dies and the container goes on, the lock is held until max-hold (${inputs.options.maxHold})`);
  return 0;
}

let code = 1;
try {
  code = await main();
} catch (error) {
  annotate('error', error.message);
}
// The connection to the renewing process would keep this one alive. If nobody said `keep`, it gives back what it has.
process.exit(code);
