// A process that holds a lock and does what it is told on its standard input. Arguments: URL, lock, what to do, TTL.

import process from 'node:process';
import { createInterface } from 'node:readline';

import { Latchgate } from '../src/index.js';

const [url, lock, work, ttl] = process.argv.slice(2);
const lease = await new Latchgate(url).acquire(lock, { ttl });
const over = (reason) => console.log(`over ${reason.name} ${reason.why} ${lease.signal.aborted}`);
console.log(`held ${lease.fencingToken}`);

if (work === 'check') {
  // No timer of the client runs in here.
  for (let before = performance.now(); ; ) {
    const began = performance.now();
    try {
      lease.check();
      if (began - before > 1_000) console.log('held after the pause');
      before = began;
    } catch (error) {
      over(error);
      console.log(`paused ${performance.now() - before > 1_000}`);
      break;
    }
  }
  process.exit();
}

let ahead = 0;
const real = Date.now;
Date.now = () => real() + ahead;
lease.signal.addEventListener('abort', () => work === 'sleep' && over(lease.signal.reason));
const input = createInterface({ input: process.stdin });
for await (const line of input) {
  if (line === 'leave') break;
  ahead += 3_600_000;
  console.log('jumped');
}
input.close();
process.stdin.destroy();
