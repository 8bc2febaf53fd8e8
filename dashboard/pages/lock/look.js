// A lock as the gateway last showed it: looked at anew when something happens to it, and now and then.

import { useEffect, useSignal } from "../../view.js";
import { ask, lockPath, Problem } from "../../model/api.js";
import { times } from "../../model/clock.js";
import { connection } from "../../model/connection.js";
import { watch } from "../../model/feed.js";
import { seeHolders } from "../../model/leases.js";
import { take } from "../../model/locks.js";
import { lengthOf } from "../../model/reservation.js";
import { asRest, restsOf } from "../../model/rests.js";
import { firstRelease } from "../../model/sharers.js";
import { soon } from "../../model/soon.js";

/** No event tells that a waiter has left the queue. */
const QUEUED = 2_000;
const QUIET = 10_000;

const UNSEEN = { state: "loading", lock: null, problem: null };

/**
 * `{state, lock, problem, again}`; a lock that was seen once stays while it is looked at anew. One that the key may not
 * see, as far as is known (`sees`), is asked for once: the answer says it better.
 */
export function useLook(name, sees) {
  const seen = useSignal({ ...UNSEEN, sees });
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
        const { body, sentAt } = await ask(lockPath(name), { signal: stop.signal, expected: sees ? undefined : 403 });
        take(body, sentAt);
        seeHolders(name, body, sentAt);
        seen.value = { state: "ready", lock: shaped(body, sentAt, seen.value.lock), problem: null, sees };
      } catch (problem) {
        if (stop.signal.aborted) return;
        if (!(problem instanceof Problem)) throw problem;
        // Whoever is signed in by now may not see what was seen before.
        const lock = problem.status === 403 ? null : seen.value.lock;
        seen.value = { lock, state: "failed", problem, sees };
      }
      asked = false;
      if (askAgain) soonLook();
      askAgain = false;
      if (seen.value.problem?.status === 403) return;
      timer = setTimeout(() => document.hidden || look(), seen.value.lock?.waiter_count ? QUEUED : QUIET);
    };
    const soonLook = soon(() => stop.signal.aborted || !sees || look(), 120);
    if (seen.value.sees !== sees) seen.value = { ...UNSEEN, sees };
    const unwatch = watch((event) => (event.name === name || event.kind === "gap") && soonLook());
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
  }, [name, sees]);
  useEffect(() => {
    if (state === "live" && sees) again.value();
  }, [state]);
  // What was seen before is not for who may not see it any more.
  const shown = seen.value.sees === sees ? seen.value : UNSEEN;
  return { ...shown, again: () => again.value() };
}

/**
 * With each holder what is shown of its time; of the lock that of the one that ends last. The gateway names the one first
 * that ends first: here each keeps its place when it is renewed. What rests is counted on from `before`.
 */
function shaped(body, sentAt, before) {
  const holders = body.holders.map((holder) => {
    const shown = { ttl: lengthOf(holder), foreign: holder.foreign, reservation: holder.reservation ?? null, waiting: holder.waiting ?? false, ended: null, ...times(holder, sentAt) };
    return { ...holder, shown };
  });
  const slot = ({ slot }) => slot ?? Infinity;
  holders.sort((one, other) => slot(one) - slot(other) || one.fencing_token - other.fencing_token);
  const [holder = null] = holders;
  // Only a foreign client can have no expiry, and it holds the lock alone.
  const last = holders.reduce((one, other) => (other.expires_in_ms > one.expires_in_ms ? other : one), holder);
  const releaseBy = firstRelease(holders.map((one) => one.shown));
  const rests = restsOf(body.resting ?? [], sentAt, before?.rests);
  const shown = last ? { ...last.shown, releaseBy, waiting: holders.every((one) => one.shown.waiting) } : rests.length > 0 ? { ...asRest(rests), ended: null } : null;
  return { ...body, holders, holder, rests, sentAt, shown };
}
