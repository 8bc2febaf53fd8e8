// What `npm pack` would publish.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync, readdirSync } from 'node:fs';
import { test as nodeTest } from 'node:test';
import { fileURLToPath } from 'node:url';

const test = (name, run) => nodeTest(name, { timeout: 120_000 }, run);
const root = fileURLToPath(new URL('..', import.meta.url));
const manifest = JSON.parse(readFileSync(`${root}package.json`, 'utf8'));

test('npm pack lists what belongs into the package, and nothing else', () => {
  const { stdout, stderr, status } = spawnSync('npm', ['pack', '--dry-run', '--json', '--offline'], { cwd: root, encoding: 'utf8' });
  assert.equal(status, 0, stderr);
  const [packed] = Object.values(JSON.parse(stdout));
  const sources = readdirSync(`${root}src`).map((file) => `src/${file}`);
  const types = ['index.d.ts', 'id-token.d.ts', 'manager.d.ts'].filter((file) => existsSync(root + file));
  const expected = ['CHANGELOG.md', 'LICENSE', 'README.md', 'package.json', ...types, ...sources];
  assert.deepEqual(packed.files.map(({ path }) => path).sort(), expected.sort());
  assert.equal(packed.name, '@latchgate/client');
});

test('the types export the same values as the modules', async () => {
  for (const [types, module] of [['index.d.ts', 'src/index.js'], ['id-token.d.ts', 'src/id-token.js'], ['manager.d.ts', 'src/manager.js']]) {
    const declared = readFileSync(root + types, 'utf8').matchAll(/^export (?:declare )?(?:abstract )?(?:class|const|let|var|function|enum) (\w+)/gm);
    const exported = Object.keys(await import(new URL(`../${module}`, import.meta.url)));
    assert.deepEqual([...declared].map(([, name]) => name).sort(), exported.sort(), types);
  }
});

test('npm would publish it without a complaint', () => {
  const { stderr, status } = spawnSync('npm', ['publish', '--dry-run', '--offline'], { cwd: root, encoding: 'utf8' });
  assert.equal(status, 0, stderr);
  const complaints = stderr.split('\n').filter((line) => line.startsWith('npm warn') && !line.includes('requires you to be logged in'));
  assert.deepEqual(complaints, []);
});

test('every file that the exports name exists', () => {
  for (const target of Object.values(manifest.exports).flatMap((it) => (typeof it === 'string' ? it : Object.values(it)))) {
    assert(existsSync(root + target), target);
  }
});

test('it has no dependencies, and its version is in the changelog', () => {
  assert.deepEqual([manifest.dependencies, manifest.peerDependencies], [undefined, undefined]);
  assert(readFileSync(`${root}CHANGELOG.md`, 'utf8').includes(`## ${manifest.version}`));
});
