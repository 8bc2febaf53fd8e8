// The leases that were acquired from this page. Their tokens are kept in memory and nowhere else.

import { signal } from "../view.js";
import { ask, lockPath, Problem, root } from "./api.js";
import { now } from "./clock.js";
import { watch } from "./feed.js";

/**
 * By lock name a signal of `{state, lease, expiresAt, waitsUntil, keep, problem, said}`; `state` is
 * `idle`, `waiting`, `held`, `busy` (renewing or releasing) or `over`.
 */
const kept = new Map();

/** What this page has of the lock. */
export function leaseOf(name) {
  if (!kept.has(name)) kept.set(name, signal({ state: "idle" }));
  return kept.get(name);
}

/** Asks for the lock. The queue is left by hanging up: `give up` aborts. */
export async function acquire(name, body) {
  const mine = leaseOf(name);
  const stop = new AbortController();
  const wait = body.wait_ms ?? 0;
  mine.value = { state: "waiting", since: now(), waitsUntil: now() + wait, giveUp: () => stop.abort() };
  try {
    const options = { method: "POST", body, signal: stop.signal, timeout: wait + 15_000 };
    const answer = await ask(lockPath(name), options);
    mine.value = { state: "held", ...granted(answer), said: told("POST", lockPath(name), answer) };
  } catch (problem) {
    if (stop.signal.aborted) mine.value = { state: "idle" };
    else failed(mine, { state: "idle" }, problem);
  }
}

/** Makes the lease last longer. */
export async function renew(name) {
  const mine = leaseOf(name);
  const before = mine.value;
  mine.value = { ...before, state: "busy", problem: null };
  const path = lockPath(name, "renew");
  try {
    const answer = await ask(path, { method: "PUT", headers: tokenOf(before) });
    mine.value = { ...before, state: "held", problem: null, ...granted(answer), said: told("PUT", path, answer) };
  } catch (problem) {
    failed(mine, before, problem);
  }
}

/** Gives the lock back. */
export async function release(name) {
  const mine = leaseOf(name);
  const before = mine.value;
  mine.value = { ...before, state: "busy", problem: null };
  try {
    const answer = await ask(lockPath(name), { method: "DELETE", headers: tokenOf(before) });
    mine.value = { state: "idle", said: told("DELETE", lockPath(name), answer) };
  } catch (problem) {
    failed(mine, before, problem);
  }
}

/** Whether it is to be renewed again and again by itself. */
export function keep(name, on) {
  const mine = leaseOf(name);
  mine.value = { ...mine.value, keep: on };
}

/** Renews what is to be kept, and sees what is over; a lease does not wait until it is looked at. */
function tend() {
  for (const [name, mine] of kept) {
    const { state, keep, expiresAt, renewAt } = mine.value;
    if (state !== "held") continue;
    if (now() >= expiresAt) over(mine, "Its time is over.");
    else if (keep && now() >= renewAt) renew(name);
  }
}

setInterval(tend, 1_000);

/** Forgets every lease; they end by themselves. */
export function forgetLeases() {
  kept.clear();
}

function granted({ body: lease, sentAt }) {
  const renewAt = sentAt + lease.renew_after_ms;
  return { lease, expiresAt: sentAt + lease.expires_in_ms, renewAt };
}

function tokenOf({ lease }) {
  return { "Lock-Token": lease.token };
}

function failed(mine, before, problem) {
  if (!(problem instanceof Problem)) throw problem;
  if (problem.code === "lease-lost") over(mine, problem.detail, problem);
  // Not tried again at once: the next time is a little later.
  else mine.value = { ...before, renewAt: now() + 2_000, problem };
}

function over(mine, why, problem) {
  mine.value = { state: "over", why, problem, lease: mine.value.lease };
}

function told(method, path, { status, body, sentAt }) {
  return { method, path, status, body: body && { ...body, token: "…" }, ms: now() - sentAt };
}

// Somebody else may have ended it: then there is no need to wait for the next renewal.
watch((event) => {
  const mine = kept.get(event.name);
  const { state, lease } = mine?.value ?? {};
  if (state !== "held" || event.fencing_token !== lease.fencing_token) return;
  if (event.kind === "broken") over(mine, `It was broken: ${event.reason}`);
});

// What nobody can renew any more is given back, as well as that can be done while a page closes.
addEventListener("pagehide", (event) => {
  if (event.persisted) return;
  for (const [name, mine] of kept) {
    if (mine.value.state !== "held") continue;
    const body = new Blob([JSON.stringify({ token: mine.value.lease.token })], { type: "application/json" });
    navigator.sendBeacon(new URL(lockPath(name, "release"), root), body);
  }
});
