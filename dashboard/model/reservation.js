// Reserves a lock until a given time. The store keeps a reservation without the page, so the page keeps no token of it.

import { ask, lockPath, Problem } from "./api.js";
import { now } from "./clock.js";
import { may } from "./session.js";
import { isQuorum } from "./store.js";

/** How long one request waits at the gateway: common proxies give up after 29 s. */
const LINK = 25_000;
/** A gateway that permits only shorter waits than this is not asked to wait. */
const SHORTEST_LINK = 500;
/** How much longer than its wait a request may take. */
const GRACE = 10_000;
/** Pause after an answer that came before the wait was over, as from a gateway that shuts down. */
const EARLY_PAUSE = 1_000;

const HOUR = 3_600_000;

/** Whether the user may reserve the lock. A quorum reserves no lock. */
export const mayReserve = (name) => may("acquire", name) && may("reserve", name) && !isQuorum.value;

/** The time that is proposed: a full hour, at least one hour from now. */
export const proposed = () => new Date(Math.ceil(Date.now() / HOUR + 1) * HOUR);

/** A time as the gateway gets it. */
export const stamp = (date) => date.toISOString().replace(".000Z", "Z");

/** How long the lease of a holder lasts from its grant or its last renewal. The TTL of a reservation says nothing of its end. */
export function lengthOf({ reservation, acquired_at: from, ttl_ms: ttl }) {
  return reservation ? Date.parse(reservation.until) - Date.parse(from) : ttl;
}

/** A key of one attempt. The gateway gives all requests with the same key one position in the queue, and one lease. */
export const freshKey = () => Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");

/**
 * Reserves the lock with the fields of `body`, under the idempotency key `key`. If the lock is held and `waits` is set,
 * waits in the queue, with one request after the other. Returns whether the lock is reserved: if `stop` is aborted, the
 * attempt is withdrawn, and the answer is false.
 */
export async function reserve(name, body, { key, waits, stop }) {
  const headers = { "Idempotency-Key": key };
  const post = (wait) => ask(lockPath(name), {
    method: "POST",
    body: wait > 0 ? { ...body, wait_ms: wait } : body,
    headers,
    signal: stop,
    timeout: wait + GRACE,
  });
  let link = waits ? LINK : 0;
  for (;;) {
    const wait = Math.floor(Math.max(0, Math.min(link, Date.parse(body.reserve.until) - Date.now())));
    const sentAt = now();
    try {
      await post(wait);
      return true;
    } catch (problem) {
      if (stop.aborted) {
        withdraw(name, body, headers);
        return false;
      }
      const isTooLong = problem.extra?.errors?.some(({ field }) => field === "wait_ms");
      if (isTooLong && link > SHORTEST_LINK) link /= 2;
      else if (problem.code !== "locked" || wait === 0) throw problem;
      else if (now() - sentAt < wait / 2) await new Promise((resolve) => setTimeout(resolve, EARLY_PAUSE));
    }
  }
}

/** Leaves the queue: a request with the key and without a wait gives up the position. A lease that was granted is released. */
async function withdraw(name, body, headers) {
  try {
    const { body: lease } = await ask(lockPath(name), { method: "POST", body, headers });
    await ask(lockPath(name), { method: "DELETE", headers: { "Lock-Token": lease.token } });
  } catch (problem) {
    // 423 is the normal answer: the request has left the queue. After any other problem the gateway ends the position.
    if (!(problem instanceof Problem)) throw problem;
  }
}
