// A gateway for a test run: on a free port, with a store of its own, gone when the run is.

import { spawn } from 'node:child_process';
import { program } from './program.js';

export { program };

// The shell outlives a test run that is killed: then its input ends, and it ends the gateway and removes the store.
const SCRIPT = `
folder=$(mktemp -d "\${TMPDIR:-/tmp}/latchgate-test.XXXXXX") || exit 1
"$0" serve --listen 127.0.0.1:0 --store "embedded:$folder/store" 2>"$folder/log" &
gateway=$!
exec >&-
read -r _
kill -9 $gateway 2>/dev/null
{ wait $gateway; } 2>/dev/null
[ $? = 137 ] || cat "$folder/log" >&2
rm -rf "$folder"
`;

/** Starts a gateway, which ends with the test `t`, or with whatever else calls the function that `t.after` is given. */
export async function gateway(t) {
  // Settings of whoever runs the tests are for other gateways.
  const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith('LATCHGATE_')));
  const shell = spawn('sh', ['-c', SCRIPT, program()], { env, stdio: ['pipe', 'pipe', 'inherit'], detached: true });
  const ended = new Promise((resolve) => shell.on('close', resolve));
  const stop = async () => {
    shell.ref();
    shell.stdin.end('end\n');
    await ended;
  };
  shell.stdin.on('error', () => {}); // It has ended already.
  try {
    const url = await address(shell);
    // A run that has nothing else to do ends, and the gateway with it.
    for (const each of [shell, shell.stdin, shell.stdout]) each.unref();
    t?.after(stop);
    return { url, stop };
  } catch (error) {
    await stop();
    throw error;
  }
}

function address(shell) {
  return new Promise((resolve, reject) => {
    let said = '';
    shell.stdout.setEncoding('utf8').on('data', (text) => {
      said += text;
      const found = /listens on (http:\S+)/.exec(said);
      if (found) resolve(found[1]);
    });
    shell.stdout.on('end', () => reject(new Error('the gateway did not start: the reason is on standard error')));
    shell.on('error', reject);
  });
}
