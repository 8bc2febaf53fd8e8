// Requests to the gateway, the same that everybody can make, and the problems that it answers.

import { signal } from "../view.js";
import { heard } from "./clock.js";

/** Where the gateway is: the page is served at `dashboard/` below it, whatever its base path. */
export const root = new URL("../", document.baseURI);

/** Changes with each answer after which it is to be asked who is signed in. */
export const unauthorized = signal(0);
/** Changes with each answer that the store had no part in. */
export const doubtful = signal(0);
/** Between two of those that may have another reason than that somebody else is, or nobody. */
const DOUBTS = 5_000;
let doubtedAt = -Infinity;

/** Longer than a gateway takes to say that its store does not answer. */
const TIME_OUT = 10_000;

const JSON_BODY = { "Content-Type": "application/json" };
/** What a form on a foreign page cannot send, for browsers that do not say where a request is from. */
const CHANGES = { "X-Requested-With": "latchgate" };
const OURS = { POST: CHANGES, PUT: CHANGES, DELETE: CHANGES };

let signedInAs = null;

/**
 * Says by which name of a key the page knows who is signed in, or null. Requests say it too: another tab may sign in
 * somebody else at any moment, and what is meant by one person is not to be done as another.
 */
export function sendAs(name) {
  signedInAs = name;
}

/** The header that says so. */
export const identity = () => (signedInAs === null ? {} : { "Signed-In-As": signedInAs });

/** Something that was not done, or of which it is not known whether it was. */
export class Problem extends Error {
  constructor({ status = 0, code, title, detail, ...extra }) {
    super(title);
    Object.assign(this, { status, code, title, detail, extra });
  }

  /** Whether it may have happened all the same. */
  get isUnknown() {
    return this.code === "unreachable" || this.code === "outcome-unknown";
  }
}

/** A name as a segment of a path, in which what names are mostly made of stays readable. */
export const segment = (name) => encodeURIComponent(name).replaceAll("%3A", ":").replaceAll("%40", "@");

/** The address of a lock, or of what can be done with it. */
export function lockPath(name, verb) {
  const path = `locks/${segment(name)}`;
  return verb ? `${path}/${verb}` : path;
}

const request = (url, init) =>
  fetch(url, { credentials: "same-origin", cache: "no-store", ...init, headers: { ...OURS[init.method], ...init.headers } });

/** `fetch` for the client of the gateway. */
export async function send(url, init) {
  const sentAt = performance.now();
  const response = await request(url, init);
  heard(response.headers.get("date"), sentAt);
  refused(response.status);
  return response;
}

/**
 * Sends a request, or takes the answer to one that was sent `early`. The answer is `{status, body, headers, sentAt}`;
 * anything above 299 is thrown. A 403 that is `expected` tells nothing new of who is signed in.
 */
export async function ask(path, options = {}) {
  const { method = "GET", body, headers = {}, signal: stop, timeout = TIME_OUT, early, expected } = options;
  const sentAt = early?.sentAt ?? performance.now();
  const limit = AbortSignal.timeout(timeout);
  let response;
  let text;
  try {
    const init = {
      method,
      headers: { ...(path !== "session" && identity()), ...(body !== undefined && JSON_BODY), ...headers },
      body: body === undefined ? undefined : JSON.stringify(body),
      signal: stop ? AbortSignal.any([stop, limit]) : limit,
    };
    response = await (early?.response ?? request(new URL(path, root), init));
    text = await response.text();
  } catch (error) {
    if (stop?.aborted) throw error;
    throw unreachable(limit.aborted);
  }
  heard(response.headers.get("date"), sentAt);
  if (path !== "session" && response.status !== expected) refused(response.status);
  const json = parsed(text);
  if (json?.code === "store-unavailable" || json?.code === "outcome-unknown") doubtful.value += 1;
  if (!response.ok) throw problem(response, json);
  return { status: response.status, body: json, headers: response.headers, sentAt };
}

/**
 * Takes note of an answer that may be the first word of a session that is over: 401; 403, for who is signed in now may
 * not do what the page was made for; 429, for who comes again and again with a cookie of another gateway, which has
 * the same name on another port of this host, is told no more than that.
 */
export function refused(status) {
  if (status !== 401 && status !== 403 && status !== 429) return;
  const certain = status !== 429;
  if (!certain && performance.now() - doubtedAt < DOUBTS) return;
  if (!certain) doubtedAt = performance.now();
  unauthorized.value += 1;
}

/** What a refusal means, for a response whose body has been read. */
export function problem(response, json) {
  const known = json && typeof json === "object" && typeof json.code === "string";
  if (known) return new Problem({ ...json, status: response.status });
  return new Problem({
    status: response.status,
    code: "unexpected",
    title: `The answer was ${response.status}`,
    detail: "The answer did not come from the gateway, but from a program between the gateway and this page.",
    body: json,
  });
}

/** A request without an answer. A browser that has no connection left does not send it, and its time runs out, too. */
export function unreachable(late) {
  return new Problem({
    code: "unreachable",
    title: late ? "There was no answer in time" : "The gateway does not answer",
    detail: late
      ? "The gateway is slow or gone, or the browser has no connection left: over HTTP/1.1 it makes six to a gateway, for all windows."
      : "The connection could not be made, or broke before the answer.",
  });
}

function parsed(text) {
  try {
    return text ? JSON.parse(text) : undefined;
  } catch {
    return undefined;
  }
}
