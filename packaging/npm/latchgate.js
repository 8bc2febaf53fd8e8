#!/usr/bin/env node
// The command `latchgate`: the program for this machine, in the place of Node.

import { spawn } from 'node:child_process';
import { isatty } from 'node:tty';
import { program } from './program.js';

let path;
try {
  path = program();
} catch (error) {
  console.error(`latchgate: ${error.message}`);
  process.exit(127);
}
const words = process.argv.slice(2);
if (process.execve) {
  // Node warns that this function is experimental. The warning would stand before the output of the program.
  process.emitWarning = () => {};
  process.execve(path, [path, ...words], process.env);
}

// Node before 22.15 cannot be replaced. It passes signals on, and ends as the program ends.
const child = spawn(path, words, { stdio: 'inherit' });
// What a terminal sends reaches the program without help, and a second signal would end it at once.
const ofTerminal = [0, 1, 2].some((file) => isatty(file)) ? ['SIGINT', 'SIGQUIT'] : [];
const signals = ['SIGINT', 'SIGQUIT', 'SIGTERM', 'SIGHUP'];
for (const signal of signals) {
  process.on(signal, () => ofTerminal.includes(signal) || child.kill(signal));
}
child.on('error', (error) => {
  console.error(`latchgate: ${path} does not start: ${error.message}`);
  process.exit(126);
});
child.on('exit', (code, signal) => {
  if (signal === null) process.exit(code);
  for (const each of signals) process.removeAllListeners(each);
  process.kill(process.pid, signal);
});
