// One idea: a function that may run for a few seconds only, and still waits its turn in order.
//
//   const { handler } = await import("./examples/serverless.mjs");
//   await handler({ job: "job-17" });      // FUNCTION_SECRET in the environment
//
// Each call asks for as long as it may and, if it is not its turn yet, comes back with "again": whoever calls functions
// (a queue, a workflow) calls once more, with the same event. The Idempotency-Key is made of the event, so
// that the next call takes the place of this one in the queue, and a call whose answer got lost gets the same lease.
// Whoever knows the key can ask for the lease: it is made with a secret that only the function has.

import { createHmac } from "node:crypto";

const gateway = process.env.LATCHGATE_URL ?? "http://localhost:7420";
const waitMs = 2_000;

function keyOf(event) {
    return createHmac("sha256", process.env.FUNCTION_SECRET).update(event.job).digest("hex");
}

export async function handler(event, work = async () => {}) {
    const lock = `${gateway}/locks/${encodeURIComponent("invoices")}`;
    const answer = await fetch(lock, {
        method: "POST",
        headers: { "Content-Type": "application/json", "Idempotency-Key": keyOf(event) },
        body: JSON.stringify({ ttl_ms: 15_000, wait_ms: waitMs, owner: event.job }),
        signal: AbortSignal.timeout(waitMs + 5_000),
    });
    const said = await answer.json();
    if (answer.status === 423) {
        // Not later than the grace for which the place is kept: five seconds.
        return { state: "again", afterMs: Math.min(said.retry_after_ms ?? 0, 3_000) };
    }
    if (!answer.ok) {
        throw new Error(`${said.code}: ${said.detail}`);
    }
    try {
        await work(said.fencing_token);
    } finally {
        await fetch(lock, { method: "DELETE", headers: { "Lock-Token": said.token } });
    }
    return { state: "done", fencingToken: said.fencing_token };
}
