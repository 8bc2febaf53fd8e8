// Who is signed in, and what they may: the page hides what the gateway would refuse.

import { effect, signal } from "../view.js";
import { ask, Problem, unauthorized } from "./api.js";

/**
 * `{state}`: `unknown` before the first answer, `failed` with a `problem`, `out` with a `why`, or `in`
 * with what the gateway says: `authentication` (whether there are keys at all), `name`, `permissions`.
 */
export const session = signal({ state: "unknown" });

/** How soon the gateway is asked again that did not say who this is. */
const RETRY = 3_000;

/** Asks the gateway who this is. */
export async function begin(why) {
  try {
    const { body, sentAt } = await ask("session");
    enter(body, sentAt, why);
  } catch (problem) {
    if (!(problem instanceof Problem)) throw problem;
    if (session.value.state === "in") return;
    session.value = { state: "failed", problem };
    setTimeout(() => session.value.state === "failed" && begin(why), RETRY);
  }
}

/** Exchanges an API key for a session. The key is kept nowhere. */
export async function signIn(key) {
  const { body, sentAt } = await ask("session", { method: "POST", body: { key } });
  enter(body, sentAt);
}

/** Ends the session. */
export async function signOut() {
  await ask("session", { method: "DELETE" });
  session.value = { state: "out" };
}

/** Whether the key may do this (`acquire`, `view`, `break`) with this lock. */
export function may(permission, name) {
  const { state, permissions } = session.value;
  return state === "in" && permissions[permission].some((prefix) => covers(prefix, name));
}

/** Whether the key may see any lock at all. */
export function seesSomething() {
  const { state, permissions } = session.value;
  return state === "in" && permissions.view.length > 0;
}

/** Whether the key may read the gateway's figures. */
export function seesFigures() {
  const { state, permissions } = session.value;
  return state === "in" && (permissions.metrics || permissions.view.includes("*"));
}

/**
 * The prefixes to ask for, to see every visible lock whose name begins so: one question for each,
 * because a list is only answered if all of it may be seen.
 */
export function visiblePrefixes(begin) {
  const { state, permissions } = session.value;
  if (state !== "in") return [];
  const { view } = permissions;
  if (view.some((prefix) => covers(prefix, begin))) return [begin];
  const inside = view.filter((prefix) => prefix.startsWith(begin));
  return inside.filter((prefix) => !inside.some((other) => other !== prefix && covers(other, prefix)));
}

function covers(prefix, name) {
  return prefix === "*" || name.startsWith(prefix);
}

let ending = null;

function enter(said, sentAt, why) {
  clearTimeout(ending);
  if (said.authentication && !said.signed_in) {
    session.value = { state: "out", why };
    return;
  }
  const left = said.expires_in_ms;
  // Asks again when the session should be over; a timer holds 24 days at most.
  if (left !== null) ending = setTimeout(ended, Math.min(left + 500, 2 ** 31 - 1));
  session.value = { ...said, state: "in", endsAt: left === null ? null : sentAt + left };
}

function ended() {
  begin("Your session is over: it has run out, or the key was revoked.");
}

// A refused request is the first that is heard of a session that is over before its time.
let seen = 0;
effect(() => {
  const refused = unauthorized.value;
  if (refused === seen) return;
  seen = refused;
  ended();
});
