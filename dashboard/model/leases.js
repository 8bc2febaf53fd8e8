// The leases that were acquired from this page, by the client that every page can use. Their tokens are kept in memory and
// nowhere else.

import { LatchgateError, Latchgate, LeaseLost } from "../../clients/js/src/index.js";
import { signal } from "../view.js";
import { doubtful, identity, Problem, root, send } from "./api.js";
import { now } from "./clock.js";
import { watch } from "./feed.js";
import { notify } from "./notices.js";

/**
 * By lock name a signal of `{state, lease, grantedAt, waitsUntil, keep, requested, problem, said}`; `state` is `idle`,
 * `waiting`, `held`, `busy` (renewing or releasing) or `over`.
 */
const kept = new Map();

/** A renewal that was refused is not tried again at once. */
const PAUSE = 2_000;

/** What this page has of the lock. */
export function leaseOf(name) {
  if (!kept.has(name)) kept.set(name, signal({ state: "idle" }));
  return kept.get(name);
}

/** Asks for the lock. What is not answered is asked for again, and what is given up goes back. */
export async function acquire(name, options) {
  const mine = leaseOf(name);
  const stop = new AbortController();
  const said = { value: null, waitedMs: 0 };
  mine.value = { state: "waiting", since: now(), waitsUntil: now() + options.wait, giveUp: () => stop.abort() };
  let requested = null;
  const onReleaseRequested = (request) => {
    requested = { request, by: now() + request.withinMs };
    if (mine.value.lease) mine.value = { ...mine.value, requested };
  };
  try {
    const locks = new Latchgate(root.href, { fetch: listening(said), warn: () => {} });
    const lease = await locks.acquire(name, { ...options, renew: false, signal: stop.signal, onReleaseRequested });
    if (kept.get(name) !== mine) return giveBack(lease);
    mine.value = { state: "held", lease, waitedMs: said.waitedMs, grantedAt: now(), requested, saying: said, said: said.value };
    if (said.waitedMs > 0) notify(name, "is yours");
    lease.signal.addEventListener("abort", () => ended(name, mine, lease));
  } catch (error) {
    mine.value = { state: "idle", problem: stop.signal.aborted ? null : problemOf(error) };
  }
}

/** `fetch` that keeps what was asked and answered last, as far as something was done. */
function listening(said) {
  // Fixed now: if somebody else signs in later, no copy of this request is sent in that name.
  const headers = identity();
  return async (url, init) => {
    const sentAt = now();
    const response = await send(url, { ...init, headers: { ...headers, ...init.headers } });
    if (!response.ok) return response;
    const text = await response.clone().text();
    if (init.method === "POST") said.waitedMs = JSON.parse(text).waited_ms;
    const body = text ? { ...JSON.parse(text), token: "…" } : undefined;
    const path = url.slice(root.href.length);
    said.value = { method: init.method, path, status: response.status, body, ms: now() - sentAt };
    return response;
  };
}

/** Makes the lease last longer. */
export async function renew(name) {
  const mine = leaseOf(name);
  const { lease, saying } = mine.value;
  mine.value = { ...mine.value, state: "busy", problem: null };
  let problem = null;
  try {
    await lease.renew();
  } catch (error) {
    if (!(error instanceof LeaseLost)) problem = problemOf(error);
  }
  // Meanwhile it may have ended, or be on its way back.
  if (!isStill(name, mine, lease) || mine.value.releasing) return;
  mine.value = { ...mine.value, state: "held", problem, renewAt: problem && now() + PAUSE, said: saying.value };
}

/** Gives the lock back. */
export async function release(name) {
  const mine = leaseOf(name);
  const { lease, saying } = mine.value;
  mine.value = { ...mine.value, state: "busy", problem: null, releasing: true };
  try {
    await lease.release();
    if (isStill(name, mine, lease)) mine.value = { state: "idle", said: saying.value };
  } catch (error) {
    if (!isStill(name, mine, lease)) return;
    if (error instanceof LeaseLost) over(mine, reason(error));
    else over(mine, "The lease could not be released, and may last until its TTL is over.", problemOf(error));
  }
}

/** Whether what was begun with `lease` still concerns what is shown. */
const isStill = (name, mine, lease) => kept.get(name) === mine && mine.value.state !== "over" && mine.value.lease === lease;

/** Whether it is to be renewed again and again by itself. */
export function keep(name, on) {
  const mine = leaseOf(name);
  mine.value = { ...mine.value, keep: on };
}

/** Renews what is to be kept; a lease does not wait until it is looked at. */
function tend() {
  for (const [name, mine] of kept) {
    const { state, keep, lease, renewAt } = mine.value;
    if (state !== "held" || !keep || now() < renewAt) continue;
    if (lease.expiresInMs < (lease.ttlMs * 2) / 3) renew(name);
  }
}

setInterval(tend, 1_000);

/** Forgets every lease: what is held is given back, which takes no key, and what waits gives up. */
export function forgetLeases() {
  const forgotten = [...kept.values()];
  kept.clear();
  for (const mine of forgotten) leave(mine.value);
}

/** Forgets those of locks that may not be acquired any more: nobody could renew them. */
export function keepLeases(isPermitted) {
  for (const [name, mine] of kept) {
    if (isPermitted(name)) continue;
    kept.delete(name);
    leave(mine.value);
  }
}

function leave({ state, lease, giveUp }) {
  if (state === "waiting") giveUp();
  if (state === "held" || state === "busy") giveBack(lease);
}

/** Nobody is told what comes of it: at the latest the lease ends with its time. */
function giveBack(lease) {
  lease.release().catch(() => {});
}

/** Takes in who holds a lock by an answer that was asked for then; of many it shows a part. */
export function seeHolders(name, { holders, holder_count: all }, sentAt) {
  const mine = kept.get(name);
  const { state, lease, grantedAt } = mine?.value ?? {};
  if (state !== "held" || sentAt < grantedAt || all > holders.length) return;
  if (holders.some((holder) => holder.fencing_token === lease.fencingToken)) return;
  over(mine, all === 0 ? "Nobody holds the lock any more." : "Another caller holds the lock by now.");
}

/** The client says that a lease is over. */
function ended(name, mine, lease) {
  if (isStill(name, mine, lease) && !mine.value.releasing) over(mine, reason(lease.signal.reason));
}

function reason({ why, message }) {
  return why === "expired" ? "The lease has expired." : message;
}

/** An error of the client as a problem of the page. */
function problemOf(error) {
  if (!(error instanceof LatchgateError)) throw error;
  const { status, code = "unreachable", problem, message } = error;
  if (code === "store-unavailable" || code === "outcome-unknown") doubtful.value += 1;
  const title = status ? message : "The gateway does not answer";
  return new Problem({ title, detail: problem?.detail ?? message, ...problem, status, code });
}

function over(mine, why, problem) {
  mine.value = { state: "over", why, problem };
}

const ENDS = {
  broken: ({ by, reason }) => `The lease was broken${by ? ` by ${by}` : ""}: ${reason}`,
  expired: () => "The lease expired.",
  released: () => "The lease was released.",
};

// Somebody else may have ended it: then there is no need to wait for the next renewal.
watch((event) => {
  const mine = kept.get(event.name);
  const { state, lease, releasing } = mine?.value ?? {};
  if ((state !== "held" && state !== "busy") || releasing || event.fencing_token !== lease.fencingToken) return;
  const why = ENDS[event.kind];
  if (why) over(mine, why(event));
});

// The client releases what is held, after this listener.
addEventListener("pagehide", () => {
  for (const mine of kept.values()) {
    if (mine.value.state === "waiting") mine.value.giveUp();
    else if (mine.value.lease) over(mine, "The page was left.");
  }
});
