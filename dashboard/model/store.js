// Whether the store answers the gateway: without it the connection may live, but nothing that is shown does.

import { effect, signal } from "../view.js";
import { ask, doubtful, Problem } from "./api.js";
import { now } from "./clock.js";
import { connection } from "./connection.js";

/** `{state}`: `unknown`, `answers`, or `silent` with `since` and a `detail`, as the gateway says. */
export const store = signal({ state: "unknown" });

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
  const outage = checks?.find((check) => check.status === "outage");
  const before = store.peek();
  if (!outage) {
    if (before.state !== "answers") store.value = { state: "answers" };
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
