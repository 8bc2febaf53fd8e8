// Runs the cases of the JavaScript client in a process: Node, Deno, Bun.

import { runAll } from './cases.mjs';

const results = await runAll(process.env.LATCHGATE_RIG);
console.log(`RESULTS ${JSON.stringify(results)}`);
