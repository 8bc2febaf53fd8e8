// Releases the lock when the job is over, and says whether it was held until then.

import { connect } from 'node:net';

import { enter, readLog, readOutcome } from './folder.mjs';
import { failsIfLost, lockNames } from './inputs.mjs';
import { annotate, log } from './runner.mjs';

/** More than the renewing process takes to release, or to withdraw a request. */
const ANSWER_MS = 40_000;

/** Asks the renewing process to release. Resolves to what it says, or to nothing if it is not there any more. */
function ask(address) {
  return new Promise((resolve) => {
    let said = '';
    const socket = connect(address, () => socket.write('release'));
    const timer = setTimeout(() => socket.destroy(), ANSWER_MS);
    socket.setEncoding('utf8');
    socket.on('data', (text) => (said += text));
    socket.on('error', () => {});
    socket.on('close', () => {
      clearTimeout(timer);
      try {
        resolve(JSON.parse(said));
      } catch {
        // It ended before it could say all.
        resolve(undefined);
      }
    });
  });
}

/** Whether the job may go on to be green. */
function report(outcome, names) {
  const unknown = 'it is not known whether the lock was held until now';
  const unlocked = 'The steps after that may have run while another caller held the lock.';
  const lost = (text) => {
    annotate(failsIfLost() ? 'error' : 'warning', `${names}: ${text} ${unlocked}`);
    return !failsIfLost();
  };
  switch (outcome?.state) {
    case 'released':
      log(`released ${names}, which was held for ${Math.round(outcome.heldMs / 1000)} s`);
      return true;
    case 'none':
      log(`${names} was not held`);
      return true;
    case 'lost':
      return lost(`the lock was lost before the job was over; the action noticed this at ${outcome.at} (${outcome.message}).`);
    case 'unknown':
      annotate(failsIfLost() ? 'error' : 'warning', `${names}: ${unknown} (${outcome.message}).`);
      return !failsIfLost();
    case 'unreleased': {
      const left = Math.ceil(outcome.expiresInMs / 1000);
      const free = `It is free in ${left} s at the latest.`;
      annotate('warning', `${names}: ${unknown}, because its release was not confirmed (${outcome.message}). ${free}`);
      return true;
    }
    default: {
      const free = 'The lock is free at the latest when its TTL is over.';
      return lost(`the process that renews the lock has ended, or does not answer. ${readLog()} ${free}`);
    }
  }
}

const folder = process.env.STATE_folder;
if (!folder) {
  log('no lock was acquired');
} else {
  let outcome;
  try {
    outcome = (await ask(enter(folder))) ?? readOutcome();
  } catch {
    // The folder is gone: so is whoever used it.
  }
  if (!report(outcome, lockNames().join(', '))) process.exitCode = 1;
}
