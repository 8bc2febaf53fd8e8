// The cases of Web Locks in Node: `python3 clients/rig/rig.py -- node --test clients/js/test/manager.test.mjs`.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { cases, runAll } from './manager.mjs';

const rig = process.env.LATCHGATE_RIG;
assert(rig, 'LATCHGATE_RIG is not set: run this by clients/rig/rig.py');

for (const { id, name } of cases) {
  test(`${id} ${name}`, { timeout: 120_000 }, async () => {
    const [{ error }] = await runAll(rig, [id]);
    assert.equal(error, undefined);
  });
}
