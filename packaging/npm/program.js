// Where the program for this machine is.

import { createRequire } from 'node:module';

/** The path of the program, which an optional dependency carries. */
export function program() {
  const carrier = `@latchgate/${process.platform}-${process.arch}`;
  try {
    return createRequire(import.meta.url).resolve(`${carrier}/latchgate`);
  } catch (cause) {
    throw new Error(
      `Latchgate is not installed for ${process.platform} on ${process.arch}: there is no package ${carrier}. ` +
        'It is an optional dependency of latchgate: npm leaves it out with --omit=optional, and there is one for Linux on x64 and on arm64.',
      { cause },
    );
  }
}
