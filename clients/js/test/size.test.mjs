// What the client costs whoever imports it.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { test as nodeTest } from 'node:test';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';

import { minified } from './minified.mjs';

const test = (name, run) => nodeTest(name, { timeout: 120_000 }, run);
// A KB more than before acquires stood in line: without a connection for its renewals a page lost the lock that it held.
const LIMIT = 8 * 1024;
const index = new URL('../src/index.js', import.meta.url);

test('the client has at most 8 KB, minified and compressed', (t) => {
  const bytes = gzipSync(minified(fileURLToPath(index)), { level: 9 }).length;
  t.diagnostic(`${bytes} bytes`);
  assert(bytes <= LIMIT, `${bytes} bytes, at most ${LIMIT}`);
});

test('minified, its errors have their names and codes', async () => {
  const client = await import(`data:text/javascript;base64,${Buffer.from(minified(fileURLToPath(index))).toString('base64')}`);
  const failing = (status, body, fault) => async () => {
    if (fault) throw fault;
    return new Response(body && JSON.stringify(body), { status });
  };
  const refused = Object.assign(new TypeError('fetch failed'), { cause: Object.assign(new Error(''), { code: 'ECONNREFUSED' }) });
  const cases = {
    'LockHeld locked': failing(423),
    'LeaseLost lease-lost': failing(410, { code: 'lease-lost' }),
    'OutcomeUnknown unknown-answer': failing(201, {}),
    'OutcomeUnknown outcome-unknown': failing(502),
    'GatewayUnreachable unreachable': failing(0, undefined, refused),
    'LatchgateError unknown-answer': failing(404),
  };
  for (const [expected, fetch] of Object.entries(cases)) {
    const error = await new client.Latchgate('http://gateway', { fetch }).acquire('x', { wait: 20 }).catch((it) => it);
    const [name, code] = expected.split(' ');
    assert.deepEqual([error.name, error.code, error instanceof client[name]], [name, code, true], expected);
    assert.match(String(error), new RegExp(`^${name}: `));
    assert.match(error.stack, new RegExp(`^${name}: `));
  }
});

test('it imports nothing but its own files', () => {
  const seen = new Set();
  const visit = (url) => {
    if (seen.has(url.href)) return;
    seen.add(url.href);
    for (const [, specifier] of readFileSync(url, 'utf8').matchAll(/^(?:import|export)\b[^'"]*?from '([^']+)'/gm)) {
      assert.match(specifier, /^\.\//);
      visit(new URL(specifier, url));
    }
  };
  visit(index);
  assert(seen.size >= 5, [...seen].join());
  assert(![...seen].some((href) => href.endsWith('/manager.js')), 'the manager is loaded when it is used');
});

test('from a cold start to the first lock it takes little longer than plain fetch', (t) => {
  const rig = process.env.LATCHGATE_RIG;
  assert(rig, 'LATCHGATE_RIG is not set: run this by clients/rig/rig.py');
  const start = "const { a } = await (await fetch(process.env.LATCHGATE_RIG + '/rig')).json(); const began = performance.now();";
  const end = '; console.log(performance.now() - began); process.exit();';
  const plain = `${start} await (await fetch(a + '/locks/cold-' + process.pid, { method: 'POST', body: '{}', headers: { 'content-type': 'application/json', 'idempotency-key': crypto.randomUUID() } })).json() ${end}`;
  const client = `${start} const { Latchgate } = await import('${index}'); await new Latchgate(a).acquire('cold-' + process.pid) ${end}`;
  const time = (script) => {
    const { stdout, stderr } = spawnSync(process.execPath, ['--input-type=module', '--eval', script], { encoding: 'utf8' });
    assert(Number(stdout) > 0, stderr);
    return Number(stdout);
  };
  // The fastest of a few, by turns: what the rest of the machine does only adds to it.
  let [without, with_] = [Infinity, Infinity];
  for (let i = 0; i < 7; i += 1) {
    without = Math.min(without, time(plain));
    with_ = Math.min(with_, time(client));
  }
  t.diagnostic(`${without.toFixed(1)} ms with plain fetch, ${with_.toFixed(1)} ms with the client`);
  assert(with_ - without <= 60, `${(with_ - without).toFixed(1)} ms more`);
});
