// The leases that were acquired from this page. Their tokens are kept in memory and nowhere else.

import { signal } from "../view.js";
import { ask, lockPath, Problem, root } from "./api.js";
import { now } from "./clock.js";
import { watch } from "./feed.js";

/**
 * By lock name a signal of `{state, lease, grantedAt, expiresAt, doubt, waitsUntil, keep, problem, said}`; `state` is
 * `idle`, `waiting`, `unsure` (whether it was granted), `held`, `busy` (renewing or releasing) or `over`. `doubt`: a
 * renewal was not answered, and may have made it last longer.
 */
const kept = new Map();

const TIME_IS_OVER = "Its time is over.";

/** When it is asked whether the lock was granted to an attempt that was given up, in milliseconds. */
const RECLAIMS = [0, 2_000, 5_000];

/** What this page has of the lock. */
export function leaseOf(name) {
  if (!kept.has(name)) kept.set(name, signal({ state: "idle" }));
  return kept.get(name);
}

/** Asks for the lock, and with `attempt` once more for the one of which it is not known who has it. */
export async function acquire(name, body, attempt = { body, key: newKey() }) {
  const mine = leaseOf(name);
  const stop = new AbortController();
  const wait = attempt.body.wait_ms ?? 0;
  const giveUp = () => stop.abort();
  mine.value = { state: "waiting", since: now(), waitsUntil: now() + wait, giveUp };
  try {
    const answer = await ask(lockPath(name), { ...asked(attempt), signal: stop.signal, timeout: wait + 15_000 });
    if (kept.get(name) !== mine) return giveBack(name, answer.body);
    // A lease that was granted before tells how long that took then.
    const waited = answer.status === 201 ? answer.body.waited_ms : 0;
    mine.value = { state: "held", ...granted(answer, waited), grantedAt: now(), said: told("POST", lockPath(name), answer) };
  } catch (problem) {
    if (stop.signal.aborted) letGo(name, mine, attempt);
    else if (problem.isUnknown) {
      const again = () => acquire(name, null, attempt);
      mine.value = { state: "unsure", problem, again, giveUp: () => letGo(name, mine, attempt) };
    } else failed(mine, { state: "idle" }, problem);
  }
}

/** As secret as a token. `randomUUID` is not there where the page came over plain HTTP. */
function newKey() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

function asked({ body, key }) {
  return { method: "POST", body, headers: { "Idempotency-Key": key } };
}

/** Gives an attempt up. The lock may have been granted all the same: then it goes back. */
async function letGo(name, mine, attempt) {
  mine.value = { state: "idle" };
  const request = asked({ ...attempt, body: { ...attempt.body, wait_ms: 0 } });
  for (const pause of RECLAIMS) {
    await new Promise((resolve) => setTimeout(resolve, pause));
    // Nobody is signed in any more: the gateway gives back what nobody has fetched.
    if (kept.get(name) !== mine) return;
    try {
      const { body } = await ask(lockPath(name), request);
      return giveBack(name, body);
    } catch (problem) {
      if (!(problem instanceof Problem)) throw problem;
      if (problem.status > 0 && problem.status < 500) return;
    }
  }
}

/** Makes the lease last longer. */
export async function renew(name) {
  const mine = leaseOf(name);
  const before = mine.value;
  if (isOver(before)) return over(mine, TIME_IS_OVER);
  mine.value = { ...before, state: "busy", problem: null };
  const path = lockPath(name, "renew");
  try {
    const answer = await ask(path, { method: "PUT", headers: tokenOf(before) });
    if (isStill(name, mine, before)) mine.value = { ...mine.value, state: "held", ...granted(answer), said: told("PUT", path, answer) };
  } catch (problem) {
    const doubt = before.doubt || problem.isUnknown;
    if (isStill(name, mine, before)) failed(mine, { ...mine.value, state: "held", doubt }, problem);
  }
}

/** Gives the lock back. What somebody wants to give back is not renewed by itself any more. */
export async function release(name) {
  const mine = leaseOf(name);
  const before = mine.value;
  if (isOver(before)) return over(mine, TIME_IS_OVER);
  mine.value = { ...before, state: "busy", problem: null, keep: false };
  try {
    const answer = await ask(lockPath(name), { method: "DELETE", headers: tokenOf(before) });
    if (kept.get(name) === mine) mine.value = { state: "idle", said: told("DELETE", lockPath(name), answer) };
  } catch (problem) {
    if (isStill(name, mine, before)) failed(mine, { ...mine.value, state: "held" }, problem);
  }
}

/** Whether it is known that there is nothing to renew or to give back any more. */
const isOver = ({ expiresAt, doubt }) => !doubt && now() >= expiresAt;

/** Whether what was begun with `before` still concerns what is shown: meanwhile it may have ended. */
function isStill(name, mine, before) {
  const { state, lease } = mine.value;
  return kept.get(name) === mine && state === "busy" && lease.fencing_token === before.lease.fencing_token;
}

/** Whether it is to be renewed again and again by itself. */
export function keep(name, on) {
  const mine = leaseOf(name);
  mine.value = { ...mine.value, keep: on };
}

/** Renews what is to be kept, and sees what is over; a lease does not wait until it is looked at. */
function tend() {
  for (const [name, mine] of kept) {
    const { state, keep, expiresAt, renewAt, lease, doubt } = mine.value;
    if (state !== "held") continue;
    if (now() >= expiresAt) {
      over(mine, TIME_IS_OVER);
      // Our clock decides what is shown, and not what the store was told.
      if (doubt) giveBack(name, lease);
    } else if (keep && now() >= renewAt) renew(name);
  }
}

setInterval(tend, 1_000);

/** Forgets every lease: what is held is given back, which takes no key, and what waits gives up. */
export function forgetLeases() {
  const forgotten = [...kept];
  kept.clear();
  for (const [name, mine] of forgotten) leave(name, mine.value);
}

/** Forgets those of locks that may not be acquired any more: nobody could renew them. */
export function keepLeases(isPermitted) {
  for (const [name, mine] of kept) {
    if (isPermitted(name)) continue;
    kept.delete(name);
    leave(name, mine.value);
  }
}

function leave(name, value) {
  const { state, lease, giveUp } = value;
  if (state === "waiting") giveUp();
  // What is under way may be a renewal.
  if (state === "busy" || (state === "held" && !isOver(value))) giveBack(name, lease);
}

/** Takes in who holds a lock by an answer that was asked for then; of many it shows a part. */
export function seeHolders(name, { holders, holder_count: all }, sentAt) {
  const mine = kept.get(name);
  const { state, lease, grantedAt } = mine?.value ?? {};
  if (state !== "held" || sentAt < grantedAt || all > holders.length) return;
  if (holders.some((holder) => holder.fencing_token === lease.fencing_token)) return;
  over(mine, all === 0 ? "Nobody holds the lock any more." : "Somebody else holds the lock by now.");
}

/** Times count from the store's answer: from when it was asked, after the wait, to be on the safe side. */
function granted({ body: lease, sentAt }, waited = 0) {
  const from = Math.min(now(), sentAt + waited);
  const releaseBy = from + (lease.release_requested?.within_ms ?? 0);
  return { lease, doubt: false, expiresAt: from + lease.expires_in_ms, renewAt: from + lease.renew_after_ms, releaseBy };
}

/** Gives back what is not shown as held any more, as well as that can be done: also while a page closes. */
function giveBack(name, { token }) {
  const body = new Blob([JSON.stringify({ token })], { type: "application/json" });
  navigator.sendBeacon(new URL(lockPath(name, "release"), root), body);
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

const ENDS = {
  broken: ({ reason }) => `It was broken: ${reason}`,
  expired: () => "Its time was over.",
  released: () => "It was released.",
};

// Somebody else may have ended it: then there is no need to wait for the next renewal.
watch((event) => {
  const mine = kept.get(event.name);
  const { state, lease } = mine?.value ?? {};
  if ((state !== "held" && state !== "busy") || event.fencing_token !== lease.fencing_token) return;
  const why = ENDS[event.kind];
  if (why) over(mine, why(event));
});

// What nobody can renew any more is given back. A page that the browser keeps may be shown again.
addEventListener("pagehide", () => {
  for (const [name, mine] of kept) {
    const before = mine.value;
    leave(name, before);
    if (before.state === "held" || before.state === "busy") over(mine, "The page was left.");
  }
});
