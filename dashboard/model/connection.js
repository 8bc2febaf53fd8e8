// The stream of events, and whether it lives: everything that is shown as live hangs on it.

import { signal } from "../view.js";
import { identity, Problem, problem as toProblem, refused, root, unreachable } from "./api.js";
import { now } from "./clock.js";
import { isShared, join } from "./relay.js";
import { Parser } from "./sse.js";

/**
 * `{state}`: `off`, `connecting`, `live`, `lost` with `since` and `problem`, or `refused` with a
 * `problem` that trying again does not mend.
 */
export const connection = signal({ state: "off" });

/** Without a word for so long the stream is dead: the gateway says something every ten seconds. */
const SILENCE = 14_000;
/** How long to wait before trying again: longer each time, up to the last. */
const PAUSES = [250, 500, 1_000, 2_000, 3_000];

/** Whether events are wanted although nobody looks. */
let stays = () => false;
let listeners = { event() {}, resync() {}, session() {}, unheard() {} };
let leave = null;
let say = () => {};
let lastId = null;
/** The id that was heard first: what was before it, this window has not heard. */
let firstId = null;
/** Which opening of the stream was heard of last, by any window, and whether that was the first for this one. */
let opening = null;
let known = false;
let wake = () => {};

/**
 * Who is told of events, when everything has to be looked at anew, when the key of the session may do something else,
 * and that there will be no events.
 */
export function listen(to) {
  listeners = to;
}

/** Has the stream kept while `wanted()` is true, also while nobody looks. */
export function stayWhile(wanted) {
  stays = wanted;
}

/** Hears the events until `close`: from a stream of this window, or from the window that reads it for all. */
export function open() {
  if (leave) return;
  opening = null;
  known = false;
  if (!isShared) {
    const stop = new AbortController();
    leave = () => stop.abort();
    return void run(stop.signal);
  }
  connection.value = { state: "connecting" };
  // The name of the channel contains the signed-in key: events of one key reach no window of another key.
  const name = `latchgate-events ${root.pathname} ${JSON.stringify(identity())}`;
  ({ leave, say } = join(name, { lead: run, hear, state: told, paused: () => (connection.value = { state: "off" }), stays: () => stays() }));
}

/** Ends that. What was read last is remembered unless `forget` is given. */
export function close({ forget = false } = {}) {
  leave?.();
  leave = null;
  say = () => {};
  if (forget) lastId = firstId = null;
  connection.value = { state: "off" };
}

/** Whether the gateway answers, although nothing is heard of events. */
export function answers() {
  const { state, problem } = connection.peek();
  return state === "live" || (state === "lost" && problem?.status >= 400);
}

/** Tries again at once. */
export function retry() {
  wake();
  say({ retry: true });
}

/** How the stream is, for another window: `opened` names its opening, `at` the event that was read last. */
function told() {
  const { state, since, problem } = connection.peek();
  const { extra, ...plain } = problem instanceof Problem ? problem : {};
  return { state, ago: now() - since, problem: plain.code && { ...extra, ...plain }, opened: opening, at: lastId };
}

/** What another window says. One that has lost the lead, and does not know yet, hears events too. */
function hear({ events, retry, state, ago, problem, opened, at }, leads) {
  // Before the first load there is nothing that events would change.
  if (events && known) events.forEach(take);
  if (retry) wake();
  if (!state || leads) return;
  show({ state, since: now() - ago, problem: problem && new Problem(problem) });
  if (state !== "live") return;
  if (opened !== opening) resync(opened);
  firstId ??= at;
  lastId ??= at;
  if (lastId === at || isKnown(at)) return;
  // This window was away, and the others have read on.
  take({ id: at, kind: "gap", data: JSON.stringify({ reason: "not heard by this window", at: new Date() }) });
}

/** Shows how the stream is, in the window that reads it or in another. */
function show(value) {
  connection.value = value;
  const { state, problem } = value;
  // Whether that is the end of the session is asked; if it is, this is closed.
  if (state === "lost" && problem) refused(problem.status);
  // The gateway is there, and has no place for one more who listens, or not now.
  if (state === "lost" && answers()) listeners.unheard();
  if (state !== "refused") return;
  leave?.();
  leave = null;
  say = () => {};
}

function resync(opened) {
  opening = opened;
  listeners.resync(known ? "again" : "first");
  known = true;
}

async function run(signal) {
  let failures = 0;
  const tell = (value) => {
    connection.value = value;
    say(told());
    show(value);
  };
  const lost = (problem) => {
    const { state, since } = connection.value;
    tell({ state: "lost", since: state === "lost" ? since : now(), problem });
  };
  if (connection.value.state !== "lost") tell({ state: "connecting" });
  while (!signal.aborted) {
    let pause = PAUSES[Math.min(failures, PAUSES.length - 1)];
    try {
      await read(signal, () => {
        failures = 0;
        opening = Math.random();
        tell({ state: "live" });
        resync(opening);
      });
      pause = PAUSES[0];
      lost();
    } catch (error) {
      if (signal.aborted) return;
      if (error.status === 403) return tell({ state: "refused", problem: error });
      lost(error);
      pause = Math.max(pause, Math.min(error.extra?.retry_after_ms ?? 0, 10_000));
    }
    failures += 1;
    await rest(pause, signal);
  }
}

/** Reads the stream to its end. */
async function read(signal, opened) {
  let first = true;
  const unsaid = [];
  await stream(signal, (event) => {
    if (first) opened();
    first = false;
    // Events that arrived together are relayed in one message.
    if (unsaid.push(event) === 1) queueMicrotask(() => say({ events: unsaid.splice(0) }));
    take(event);
  });
}

/** How many events before the opening of the stream are read, and for how long. */
const PAST = 2_000;
const PAST_TIME = 5_000;

/** Reads the events before those that this window has heard, oldest first, as far as the gateway has kept them. */
export async function readPast() {
  const [instance, last] = firstId?.split("-") ?? [];
  const past = [];
  if (!(Number(last) > 0)) return past;
  const stop = new AbortController();
  const hand = ({ id, kind, data }) => {
    const [of, number] = id?.split("-") ?? [instance, 0];
    if (kind && kind !== "gap" && of === instance && Number(number) <= Number(last)) past.push({ ...JSON.parse(data), kind, id });
    if (of !== instance || Number(number) >= Number(last)) stop.abort();
  };
  try {
    await stream(AbortSignal.any([stop.signal, AbortSignal.timeout(PAST_TIME)]), hand, `${instance}-${Math.max(0, last - PAST)}`);
  } catch {
    // An error here loses only events of the past, which are shown and used for nothing else.
  }
  return past;
}

function take({ id, kind, data }) {
  if (kind === "session") return listeners.session();
  if (kind === "end" || (kind !== "gap" && isKnown(id))) return;
  firstId ??= id ?? null;
  if (id) lastId = id;
  if (!kind) return;
  if (kind === "gap") listeners.resync("gap");
  listeners.event({ ...JSON.parse(data), kind, id });
}

/** Whether the event was heard: a window that begins to lead reads again what another one has heard. */
function isKnown(id) {
  const [instance, number] = id?.split("-") ?? [];
  const [known, last] = lastId?.split("-") ?? [];
  return instance === known && Number(number) <= Number(last);
}

/** One connection: hands over what comes, until it ends, fails, or nothing comes any more. */
async function stream(signal, hand, after = lastId) {
  const dead = new AbortController();
  const headers = { Accept: "text/event-stream", ...identity() };
  if (after !== null) headers["Last-Event-ID"] = after;
  let watch;
  const heard = (problem) => {
    clearTimeout(watch);
    watch = setTimeout(() => dead.abort(problem), SILENCE);
  };
  // Perhaps the request has not even left the browser.
  heard(unreachable(true));
  try {
    const response = await fetch(new URL("events", root), {
      headers,
      signal: AbortSignal.any([signal, dead.signal]),
      credentials: "same-origin",
      cache: "no-store",
    });
    if (!response.ok) throw toProblem(response, await response.json().catch(() => null));
    const parser = new Parser(hand);
    const reader = response.body.getReader();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      heard();
      parser.push(value);
    }
  } finally {
    clearTimeout(watch);
  }
}

function rest(ms, signal) {
  return new Promise((resolve) => {
    wake = () => {
      clearTimeout(timer);
      signal.removeEventListener("abort", wake);
      resolve();
    };
    const timer = setTimeout(wake, ms);
    signal.addEventListener("abort", wake);
  });
}

addEventListener("online", () => wake());
