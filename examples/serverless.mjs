// One idea: a function that may run for a few seconds only, and still waits its turn in order.
//
//   const { handler } = await import("./examples/serverless.mjs");
//   await handler({ job: "job-17" });      // FUNCTION_SECRET in the environment
//
// Each call asks for as long as it may and, if it is not its turn yet, comes back with "again": whoever calls functions
// (a queue, a workflow) calls once more, with the same event. The idempotency key is made of the event, so
// that the next call takes the place of this one in the queue, and a call whose answer got lost gets the same lease.
// Whoever knows the key can ask for the lease: it is made with a secret that only the function has.

import { createHmac } from "node:crypto";

import { Latchgate, LockHeld } from "../clients/js/src/index.js"; // or "@latchgate/client", where it is installed

const locks = new Latchgate(process.env.LATCHGATE_URL ?? "http://localhost:7420");

function keyOf(event) {
    return createHmac("sha256", process.env.FUNCTION_SECRET).update(event.job).digest("hex");
}

export async function handler(event, work = async () => {}) {
    const options = { ttl: "15s", wait: "2s", owner: event.job, idempotencyKey: keyOf(event) };
    try {
        return await locks.with("invoices", options, async (lease, signal) => {
            await work(lease.fencingToken, signal);
            return { state: "done", fencingToken: lease.fencingToken };
        });
    } catch (error) {
        if (!(error instanceof LockHeld)) throw error;
        // Not later than the grace for which the place is kept: five seconds.
        return { state: "again", afterMs: Math.min(error.problem?.retryAfterMs ?? 0, 3_000) };
    }
}
