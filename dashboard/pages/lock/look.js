// A lock as the gateway last showed it: looked at anew when something happens to it, and now and then.

import { useEffect, useSignal } from "../../view.js";
import { ask, lockPath, Problem } from "../../model/api.js";
import { times } from "../../model/clock.js";
import { connection } from "../../model/connection.js";
import { watch } from "../../model/feed.js";
import { take } from "../../model/locks.js";
import { soon } from "../../model/soon.js";

/** No event tells that a waiter has left the queue. */
const QUEUED = 2_000;
const QUIET = 10_000;

/** `{state, lock, problem, again}`; a lock that was seen once stays while it is looked at anew. */
export function useLook(name) {
  const seen = useSignal({ state: "loading", lock: null, problem: null });
  const again = useSignal(() => {});
  const { state } = connection.value;
  useEffect(() => {
    const stop = new AbortController();
    let asked = false;
    let askAgain = false;
    let timer = null;
    const look = async () => {
      if (asked) return void (askAgain = true);
      asked = true;
      clearTimeout(timer);
      try {
        const { body, sentAt } = await ask(lockPath(name), { signal: stop.signal });
        take(body, sentAt);
        seen.value = { state: "ready", lock: shaped(body, sentAt), problem: null };
      } catch (problem) {
        if (stop.signal.aborted) return;
        if (!(problem instanceof Problem)) throw problem;
        seen.value = { ...seen.value, state: "failed", problem };
      }
      asked = false;
      if (askAgain) soonLook();
      askAgain = false;
      timer = setTimeout(() => document.hidden || look(), seen.value.lock?.waiter_count ? QUEUED : QUIET);
    };
    const soonLook = soon(() => stop.signal.aborted || look(), 120);
    const unwatch = watch((event) => event.name === name && soonLook());
    const shown = () => document.hidden || soonLook();
    document.addEventListener("visibilitychange", shown);
    again.value = look;
    look();
    return () => {
      stop.abort();
      clearTimeout(timer);
      unwatch();
      document.removeEventListener("visibilitychange", shown);
    };
  }, [name]);
  useEffect(() => {
    if (state === "live") again.value();
  }, [state]);
  return { ...seen.value, again: () => again.value() };
}

function shaped(body, sentAt) {
  const { holder } = body;
  if (holder === null) return { ...body, sentAt };
  const shown = { ttl: holder.ttl_ms, foreign: holder.foreign, ended: null, ...times(holder, sentAt) };
  return { ...body, sentAt, shown };
}
