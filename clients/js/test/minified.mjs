// The files that an import loads as one, minified.

import { spawnSync } from 'node:child_process';

/** `ESBUILD` names the program; otherwise it is looked for on the PATH. */
export function minified(file) {
  const args = [file, '--bundle', '--minify', '--format=esm', '--external:./manager.js'];
  const { stdout, stderr, error } = spawnSync(process.env.ESBUILD ?? 'esbuild', args);
  if (error) throw new Error('esbuild is needed to measure the size: npm install esbuild, and put it on the PATH', { cause: error });
  if (!stdout.length) throw new Error(String(stderr));
  return stdout;
}
