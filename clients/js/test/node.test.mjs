// The shared cases in Node. It needs the rig: `python3 clients/rig/rig.py -- node --test clients/js/test/node.test.mjs`.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { cases, runAll } from './conformance.mjs';

const rig = process.env.LATCHGATE_RIG;
assert(rig, 'LATCHGATE_RIG is not set: run this by clients/rig/rig.py');

test('there are thirty-seven cases', () => {
  assert.deepEqual(cases.map(({ id }) => id), Array.from({ length: 37 }, (_, i) => `C${String(i + 1).padStart(2, '0')}`));
});

for (const { id, name } of cases) {
  test(`${id} ${name}`, { timeout: 120_000 }, async (t) => {
    const [{ error, skipped }] = await runAll(rig, [id]);
    if (skipped) t.skip(skipped);
    else assert.equal(error, undefined);
  });
}
