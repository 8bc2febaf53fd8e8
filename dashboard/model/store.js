// Whether the store answers the gateway: without it the connection may live, but nothing that is shown does.

import { effect, signal } from "../view.js";
import { ask, doubtful, Problem } from "./api.js";
import { now } from "./clock.js";
import { connection } from "./connection.js";

/**
 * `{state}`: `unknown`, `answers`, or as the gateway says with a `detail`: `silent` with `since`, or `refusing` with `until`
 * (null if nobody knows), for a quorum that answers, and grants no lock yet.
 */
export const store = signal({ state: "unknown" });

/** Whether it is a quorum: there each gateway knows only those who wait through it. */
export const isQuorum = signal(false);

/** How often that is asked while nothing else tells. */
const OFTEN = 3_000;

let askedAt = -Infinity;
let asking = false;

/** Whether what is shown may be old. */
export const isStale = () => connection.value.state === "lost" || store.value.state === "silent";

/** Asks if it is time to. Called once a second. */
export function lookAtStore() {
  const due = now() - askedAt >= OFTEN;
  if (due && !asking && !document.hidden && connection.peek().state !== "lost") look();
}

async function look() {
  asking = true;
  askedAt = now();
  try {
    const { body, sentAt } = await ask("readyz");
    hearChecks(body.checks, sentAt);
  } catch (problem) {
    if (!(problem instanceof Problem)) throw problem;
    // Not ready for another reason, or kept from us by a proxy. Who does not answer at all is told elsewhere.
    if (problem.extra.body?.checks) hearChecks(problem.extra.body.checks, now());
  } finally {
    asking = false;
  }
}

/** Takes in what a gateway has looked at. */
export function hearChecks(checks, sentAt) {
  askedAt = Math.max(askedAt, sentAt);
  if (checks) isQuorum.value = checks.some((check) => check.name === "votes");
  const outages = checks?.filter((check) => check.status === "outage") ?? [];
  const outage = outages.find((check) => check.name !== "votes") ?? outages[0];
  const before = store.peek();
  if (!outage) {
    if (before.state !== "answers") store.value = { state: "answers" };
  } else if (outage.name === "votes") {
    const until = outage.refuses_for_ms === undefined ? null : sentAt + outage.refuses_for_ms;
    store.value = { state: "refusing", until, detail: outage.detail };
  } else if (before.state !== "silent" || before.detail !== outage.detail) {
    store.value = { state: "silent", since: before.since ?? sentAt, detail: outage.detail };
  }
}

/** Forgets what was said. */
export function forgetStore() {
  store.value = { state: "unknown" };
  askedAt = -Infinity;
}

// A request that the store has not answered is the first that is heard of it.
let doubts = 0;
effect(() => {
  if (doubtful.value === doubts) return;
  doubts = doubtful.value;
  askedAt = -Infinity;
});
