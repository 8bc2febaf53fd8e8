// The process of the runner, and whether it is still there.

import { existsSync, readFileSync } from 'node:fs';

/** What Linux says of a process; nothing if there is none. */
function look(pid) {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    // The name of the program is in brackets, and may contain some.
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    return { pid, state: fields[0], parent: Number(fields[1]), since: fields[19] };
  } catch {
    return undefined;
  }
}

/** Whether a process was started for this step: only such processes know the file of its state. */
function isOfStep(pid) {
  try {
    return readFileSync(`/proc/${pid}/environ`, 'utf8').split('\0').includes(`GITHUB_STATE=${process.env.GITHUB_STATE}`);
  } catch {
    return false;
  }
}

/**
 * The runner that started this process: the nearest ancestor that is no process of the step, such as a shell, which
 * ends with the step. In a container the runner is outside, and nothing is found.
 */
export function findRunner() {
  if (!existsSync('/proc/self/stat')) return { pid: process.ppid };
  let found = look(process.ppid);
  while (found && isOfStep(found.pid)) found = look(found.parent);
  return found && found.pid > 1 ? { pid: found.pid, since: found.since } : undefined;
}

/** Whether a runner lives. One that has ended, and whose end nobody has noticed, does not. */
export function isAlive({ pid, since }) {
  if (since) {
    const found = look(pid);
    return found !== undefined && found.since === since && !/[ZXx]/.test(found.state);
  }
  try {
    process.kill(pid, 0);
  } catch (error) {
    return error.code !== 'ESRCH';
  }
  return true;
}
