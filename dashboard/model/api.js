// Requests to the gateway, the same that everybody can make, and the problems that it answers.

import { signal } from "../view.js";

/** Where the gateway is: the page is served at `dashboard/` below it, whatever its base path. */
export const root = new URL("../../", import.meta.url);

/** The last answer was 401: whoever shows what needs a session looks at this. */
export const unauthorized = signal(0);

/** Longer than a gateway takes to say that its store does not answer. */
const TIME_OUT = 10_000;

const JSON_BODY = { "Content-Type": "application/json" };
/** What a form on a foreign page cannot send, for browsers that do not say where a request is from. */
const CHANGES = { "X-Requested-With": "latchgate" };
const OURS = { POST: CHANGES, PUT: CHANGES, DELETE: CHANGES };

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

/** Sends a request. The answer is `{status, body, headers, sentAt}`; anything above 299 is thrown. */
export async function ask(path, options = {}) {
  const { method = "GET", body, headers = {}, signal: stop, timeout = TIME_OUT } = options;
  const sentAt = performance.now();
  const limit = AbortSignal.timeout(timeout);
  let response;
  let text;
  try {
    response = await fetch(new URL(path, root), {
      method,
      headers: { ...OURS[method], ...(body !== undefined && JSON_BODY), ...headers },
      body: body === undefined ? undefined : JSON.stringify(body),
      signal: stop ? AbortSignal.any([stop, limit]) : limit,
      credentials: "same-origin",
      cache: "no-store",
    });
    text = await response.text();
  } catch (error) {
    if (stop?.aborted) throw error;
    throw unreachable(limit.aborted);
  }
  if (response.status === 401 && path !== "session") unauthorized.value += 1;
  const json = parsed(text);
  if (!response.ok) throw problem(response, json);
  return { status: response.status, body: json, headers: response.headers, sentAt };
}

/** What a refusal means, for a response whose body has been read. */
export function problem(response, json) {
  const known = json && typeof json === "object" && typeof json.code === "string";
  if (known) return new Problem({ ...json, status: response.status });
  return new Problem({
    status: response.status,
    code: "unexpected",
    title: `The answer was ${response.status}`,
    detail: "It did not come from the gateway, but from something between it and this page.",
  });
}

function unreachable(late) {
  return new Problem({
    code: "unreachable",
    title: "The gateway does not answer",
    detail: late
      ? "The request got no answer in time."
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
