// The folder that main, the renewing process and post share: a socket, and what became of the lock.

import { mkdtempSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';

/** Nobody else may look into it. The runner removes it with the other temporary files of the job. */
export const makeFolder = () => mkdtempSync(join(process.env.RUNNER_TEMP || tmpdir(), 'latchgate-'));

/** Goes into the folder, because the path of a socket must be short, and returns where to listen or connect. */
export function enter(folder) {
  process.chdir(folder);
  return process.platform === 'win32' ? `\\\\.\\pipe\\${basename(folder)}` : 'socket';
}

export function writeOutcome(outcome) {
  writeFileSync('outcome.new', JSON.stringify(outcome));
  renameSync('outcome.new', 'outcome');
}

export function readOutcome() {
  try {
    return JSON.parse(readFileSync('outcome', 'utf8'));
  } catch {
    return undefined;
  }
}

/** What a renewing process has complained of before it ended. */
export function readLog(folder = '.') {
  try {
    return readFileSync(join(folder, 'log'), 'utf8').trim().slice(-500);
  } catch {
    return '';
  }
}
