// The stream of events, and whether it lives: everything that is shown as live hangs on it.

import { signal } from "../view.js";
import { ask, identity, problem as toProblem, refused, root } from "./api.js";
import { now } from "./clock.js";
import { Parser } from "./sse.js";

/**
 * `{state}`: `off`, `connecting`, `live`, `lost` with `since` and `problem`, or `refused` with a
 * `problem` that trying again does not mend.
 */
export const connection = signal({ state: "off" });

/** After how long without a word the gateway is asked whether it is there, and how long that may take. */
const SILENCE = 5_000;
const PROBE = 4_000;
/** How long to wait before trying again: longer each time, up to the last. */
const PAUSES = [250, 500, 1_000, 2_000, 3_000];

let listeners = { event() {}, resync() {}, session() {}, unheard() {} };
let stop = null;
let lastId = null;
let heardAt = 0;
let wake = () => {};

/**
 * Who is told of events, when everything has to be looked at anew, when the key of the session may do something else,
 * and that there will be no events.
 */
export function listen(to) {
  listeners = to;
}

/** Opens the stream and keeps it open until `close`. */
export function open() {
  if (stop) return;
  stop = new AbortController();
  run(stop.signal);
}

/** Closes the stream. What was read last is remembered unless `forget` is given. */
export function close({ forget = false } = {}) {
  stop?.abort();
  stop = null;
  if (forget) lastId = null;
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
}

async function run(signal) {
  let failures = 0;
  let known = false;
  const lost = (problem) => {
    const { state, since } = connection.value;
    connection.value = { state: "lost", since: state === "lost" ? since : now(), problem };
  };
  if (connection.value.state !== "lost") connection.value = { state: "connecting" };
  while (!signal.aborted) {
    let pause = PAUSES[Math.min(failures, PAUSES.length - 1)];
    try {
      await read(signal, () => {
        failures = 0;
        connection.value = { state: "live" };
        listeners.resync(known ? "again" : "first");
        known = true;
      });
      pause = PAUSES[0];
      lost();
    } catch (error) {
      if (signal.aborted) return;
      // Whether that is the end of the session is asked; if it is, this is closed.
      if (error.status !== 403) refused(error.status);
      if (error.status === 403) {
        connection.value = { state: "refused", problem: error };
        stop = null;
        return;
      }
      lost(error);
      // The gateway is there, and has no place for one more who listens, or not now.
      if (answers()) listeners.unheard();
      pause = Math.max(pause, Math.min(error.extra?.retry_after_ms ?? 0, 10_000));
    }
    failures += 1;
    await rest(pause, signal);
  }
}

/** Reads the stream to its end. */
async function read(signal, opened) {
  let first = true;
  await stream(signal, (event) => {
    if (first) {
      first = false;
      opened();
    }
    if (event.id) lastId = event.id;
    if (!event.kind) return;
    if (event.kind === "session") return listeners.session();
    if (event.kind === "end") return;
    if (event.kind === "gap") listeners.resync("gap");
    listeners.event({ ...JSON.parse(event.data), kind: event.kind, id: event.id });
  });
}

/** One connection: hands over what comes, until it ends, fails, or the gateway stops answering. */
async function stream(signal, hand) {
  const dead = new AbortController();
  const headers = { Accept: "text/event-stream", ...identity() };
  if (lastId !== null) headers["Last-Event-ID"] = lastId;
  heardAt = now();
  const watch = setInterval(() => probe(dead), 1_000);
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
      heardAt = now();
      if (done) return;
      parser.push(value);
    }
  } finally {
    clearInterval(watch);
  }
}

let probing = false;

/** Heartbeats are further apart than a viewer wants to wait: after a silence the gateway is asked. */
async function probe(dead) {
  if (probing || document.hidden || now() - heardAt < SILENCE) return;
  probing = true;
  try {
    await ask("healthz", { timeout: PROBE });
    heardAt = now();
  } catch {
    dead.abort();
  } finally {
    probing = false;
  }
}

function rest(ms, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    wake = () => {
      clearTimeout(timer);
      resolve();
    };
    signal.addEventListener("abort", wake, { once: true });
  });
}

addEventListener("online", () => wake());
