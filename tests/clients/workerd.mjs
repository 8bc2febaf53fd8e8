// Runs the cases of the JavaScript client in workerd: one request runs all of them.

import { runAll } from './cases.mjs';

export default {
  async fetch(request, env) {
    try {
      return Response.json(await runAll(env.RIG));
    } catch (error) {
      return new Response(String(error.stack ?? error), { status: 500 });
    }
  },
};
