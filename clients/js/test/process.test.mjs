// Cases that need a process of their own, in each runtime that is there: Node, and Deno and Bun where they are on the PATH.

import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { test } from 'node:test';

import { Case, rig, sleep, within } from './rig.mjs';

const url = process.env.LATCHGATE_RIG;
assert(url, 'LATCHGATE_RIG is not set: run this by clients/rig/rig.py');
const holder = fileURLToPath(new URL('./holder.mjs', import.meta.url));
const runtimes = { node: [process.execPath], deno: ['deno', 'run', '-A'], bun: ['bun'] };

/** A process that holds a lock: what it prints, line by line, and what became of it. */
function hold(command, ...args) {
  const child = spawn(command[0], [...command.slice(1), holder, ...args], { stdio: ['pipe', 'pipe', 'inherit'] });
  const lines = [];
  const waiting = [];
  let rest = '';
  child.stdout.on('data', (chunk) => {
    rest += chunk;
    const whole = rest.split('\n');
    rest = whole.pop();
    for (const line of whole) {
      const next = waiting.shift();
      if (next) next(line);
      else lines.push(line);
    }
  });
  return {
    pid: child.pid,
    say: (text) => child.stdin.write(`${text}\n`),
    line: () => within(20_000, lines.length ? Promise.resolve(lines.shift()) : new Promise((resolve) => waiting.push(resolve)), 'a line'),
    exit: within(30_000, new Promise((resolve) => child.once('exit', resolve)), 'the exit'),
    kill: () => child.kill('SIGKILL'),
  };
}

for (const [runtime, command] of Object.entries(runtimes)) {
  const found = spawnSync(command[0], ['--version']).status === 0;
  const skip = found ? false : `${runtime} is not on the PATH`;

  const define = (name, args, run) =>
    test(`${name} (${runtime})`, { skip, timeout: 120_000 }, async () => {
      const t = new Case(url, await rig(url, ''), runtime);
      await t.reset();
      const process = hold(command, t.urls.proxy, t.lock, ...args);
      try {
        await run(t, process);
      } finally {
        process.kill();
        await t.end();
      }
    });

  define('C19 a process that was stopped finds its lease over', ['check', '2s'], async (t, process) => {
    assert.match(await process.line(), /^held \d+$/);
    const other = t.b.acquire(t.lock, { wait: '20s' });
    other.catch(() => {});
    await t.queued(1);
    globalThis.process.kill(process.pid, 'SIGSTOP');
    const granted = await within(20_000, other, 'the grant to another');
    await sleep(1_000);
    globalThis.process.kill(process.pid, 'SIGCONT');
    assert.equal(await process.line(), 'over LeaseLost expired true');
    assert.equal(await process.line(), 'paused true');
    assert.equal((await t.state()).holders[0].fencingToken, granted.fencingToken);
  });

  define('C20 a machine that slept asks the gateway at once', ['sleep', '1m'], async (t, process) => {
    assert.match(await process.line(), /^held \d+$/);
    process.say('jump');
    assert.equal(await process.line(), 'jumped');
    await sleep(2_500);
    assert.equal((await t.log('PUT')).length, 1);
    assert.equal((await t.state()).state, 'held');

    await t.b.break(t.lock, { reason: 'the test', all: true });
    process.say('jump');
    assert.equal(await process.line(), 'jumped');
    assert.equal(await process.line(), 'over LeaseLost broken true');
  });

  define('C30 a process that comes to its end gives back', ['leave', '1m'], async (t, process) => {
    assert.match(await process.line(), /^held \d+$/);
    assert.equal((await t.state()).state, 'held');
    process.say('leave');
    assert.equal(await process.exit, 0);
    await t.free(1_000);
  });

  define('C30 a process that comes to its end waits for five seconds for a gateway that hangs', ['leave', '1m'], async (t, process) => {
    assert.match(await process.line(), /^held \d+$/);
    await t.rig('/fault', { kind: 'hang', count: 1_000 });
    const began = performance.now();
    process.say('leave');
    await process.exit;
    assert(performance.now() - began < 8_000, `${performance.now() - began} ms`);
  });
}
