// Who is signed in, and what they may: the page hides what the gateway would refuse.

import { effect, signal } from "../view.js";
import { ask, Problem, sendAs, unauthorized } from "./api.js";
import { now } from "./clock.js";
import { isName } from "./name.js";
import { hearTabs, tellTabs } from "./tabs.js";

/**
 * `{state}`: `unknown` before the first answer, `failed` with a `problem`, `out` with a `why`, or `in`
 * with what the gateway says: `authentication` (whether there are keys at all), `name`, `caller` (of whom there is one
 * alone), `permissions`. `out` and `in` have `sign_in`: where people sign in, if not with a key; or null.
 */
export const session = signal({ state: "unknown" });

const OVER =
  "Your session is over: it has run out, the key was revoked, or another gateway on this host name has replaced it.";

const ELSEWHERE = "Signed out in another tab.";

/** How soon the gateway is asked again that did not say who this is. */
const RETRY = 3_000;

/** The question that was asked before the modules were there; its answer is taken once. */
let early = window.latchgateSession;

/** How often it is asked what the key may do where the stream of events tells of changes, and where there is none. */
const LOOK = { told: 60_000, untold: 5_000 };
let askedAt = -Infinity;

/** Counts the questions: the answer to an earlier one may come after that to a later one, and is old then. */
let asked = 0;

/** Asks the gateway who this is. */
export async function begin(why) {
  const mine = ++asked;
  askedAt = now();
  const question = { early };
  early = undefined;
  try {
    const { body, sentAt } = await ask("session", question);
    if (mine === asked) enter(body, sentAt, why);
  } catch (problem) {
    if (!(problem instanceof Problem)) throw problem;
    if (mine !== asked || session.value.state === "in" || session.value.state === "out") return;
    session.value = { state: "failed", problem };
    setTimeout(() => session.value.state === "failed" && begin(why), RETRY);
  }
}

/** Shows nothing until the gateway has said who this is: somebody may have signed out meanwhile. */
export function beginAnew() {
  session.value = { state: "unknown" };
  begin();
}

/** Exchanges an API key for a session. The key is kept nowhere. */
export async function signIn(key) {
  const { body, sentAt } = await ask("session", { method: "POST", body: { key } });
  asked += 1;
  enter(body, sentAt);
  tellTabs("in");
}

/** Ends the session, and that at the issuer. */
export async function signOut() {
  const { sign_out: there } = session.value;
  await ask("session", { method: "DELETE" });
  leave();
  tellTabs("out");
  if (there) location.assign(there);
}

/** Asks what the key may do by now, if it is time to. `told`: changes are told by themselves. Called once a second. */
export function lookAtSession({ told }) {
  const { state, authentication } = session.peek();
  const due = now() - askedAt > (told ? LOOK.told : LOOK.untold);
  if (state === "in" && authentication && due && !document.hidden) begin(OVER);
}

/** Something has been told after which it may do something else. */
export function lookAgain() {
  if (session.peek().state === "in") begin(OVER);
}

/** Whether the key may do this (`acquire`, `view`, `break`, `reserve`, `order`) with this lock. */
export function may(permission, name) {
  const { state, permissions } = session.value;
  // A gateway of an earlier version, behind the same address, does not list the permissions of this one.
  return state === "in" && (permissions[permission] ?? []).some((prefix) => covers(prefix, name));
}

/** Whether the key may do this with any lock at all. */
export const mayAnywhere = (permission) => session.value.state === "in" && (session.value.permissions[permission] ?? []).length > 0;

/** Whether the user may end a reservation without the permission `break`: it is the user's own, or there are no keys. */
export function isOwn({ reserved_by: by }) {
  const { state, authentication, name } = session.value;
  return state === "in" && (!authentication || by === name);
}

/** Whether the key may see any lock at all. */
export function seesSomething() {
  const { state, permissions } = session.value;
  return state === "in" && permissions.view.length > 0;
}

/** Whether the key may see every lock: where it may not, there may be more than the page knows of. */
export function seesAll() {
  const { state, permissions } = session.value;
  return state === "in" && permissions.view.includes("*");
}

/** Whether the key may read the gateway's figures. */
export function seesFigures() {
  const { state, permissions } = session.value;
  return state === "in" && (permissions.metrics || seesAll());
}

/** A name for an example: of a lock that the key may acquire and sees then. Null if there is none. */
export function exampleName() {
  const { state, permissions } = session.value;
  if (state !== "in") return null;
  const { acquire, view } = permissions;
  const both = acquire.flatMap((one) => view.map((other) => overlap(one, other)));
  return both.filter((begin) => begin !== null).map(named).find(isName) ?? null;
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

/** How the names begin that begin with both. */
function overlap(one, other) {
  if (covers(one, other)) return other;
  return covers(other, one) ? one : null;
}

/** A name that begins so; what is nearly as long as a name can be is one itself. */
function named(begin) {
  if (begin === "*") return "deploy";
  const longer = `${begin}${/[A-Za-z0-9]$/.test(begin) ? ":" : ""}deploy`;
  return isName(longer) ? longer : begin;
}

let ending = null;

function enter(said, sentAt, why) {
  clearTimeout(ending);
  if (said.authentication && !said.signed_in) {
    // Who was signed out before knows why.
    if (session.value.state !== "out") leave(why, said.sign_in);
    return;
  }
  const { state, caller } = session.value;
  // A gateway of an earlier version does not say who else may have the name.
  said.caller ??= said.name;
  // Another tab has signed in with another key: what was seen with the first one is not for the second.
  if (state === "in" && caller !== said.caller) session.value = { state: "out" };
  sendAs(said.caller);
  const left = said.expires_in_ms;
  // Asks again when the session should be over; a timer holds 24 days at most.
  if (left !== null) ending = setTimeout(ended, Math.min(left + 500, 2 ** 31 - 1));
  session.value = { ...said, state: "in", endsAt: left === null ? null : sentAt + left };
}

/** Nobody is signed in any more. Answers that are under way say nothing of that. */
function leave(why, issuer = session.value.sign_in) {
  asked += 1;
  clearTimeout(ending);
  session.value = { state: "out", why, sign_in: issuer };
  sendAs(null);
}

// A browser has one session for all tabs. Nothing is shown or done for somebody who is it no more.
hearTabs((word) => {
  const { state, why } = session.value;
  if (word === "out") {
    // A request may have told before, and not why.
    if (state === "in" || (state === "out" && why === OVER)) leave(ELSEWHERE);
    else if (state !== "out") beginAnew();
  } else if (word === "in") {
    if (state === "out") begin();
    else beginAnew();
  }
});

// Also where that was not heard.
document.addEventListener("visibilitychange", () => {
  if (document.hidden) return;
  const { state } = session.value;
  if (state === "in") begin(OVER);
  if (state === "out") begin();
});

function ended() {
  begin(OVER);
}

// A refused request is the first that is heard of a session that is over before its time.
let seen = 0;
effect(() => {
  const refused = unauthorized.value;
  if (refused === seen) return;
  seen = refused;
  if (session.peek().state !== "out") ended();
});
