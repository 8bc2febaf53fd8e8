// Runs the cases of the JavaScript client in a dedicated worker of a page.

import { runAll } from './cases.mjs';

addEventListener('message', async ({ data }) => {
  try {
    postMessage({ results: await runAll(data) });
  } catch (error) {
    postMessage({ failed: String(error.stack ?? error) });
  }
});
// What is sent before this module has been loaded is lost.
postMessage({ ready: true });
