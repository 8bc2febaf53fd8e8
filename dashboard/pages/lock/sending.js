// Sends the request of a dialog on the page of a lock, and keeps its outcome.

import { useSignal } from "../../view.js";
import { ask, lockPath, Problem } from "../../model/api.js";
import { say } from "../../parts/said.js";

/** Sends a break of the lock. */
export const breakLock = (name) => (body) => ask(lockPath(name, "break"), { method: "POST", body });

/**
 * Sends what a dialog asks for, by `request(body)`. `busy`: whether it is under way; `trouble`: the problem of the last
 * one. After a success the dialog is closed, and in every case the lock is read again. A request that answers false was
 * given up: nothing is said of it.
 */
export function useSending(request, { close, done }) {
  const busy = useSignal(false);
  const trouble = useSignal(null);
  const send = async (body, said) => {
    busy.value = true;
    trouble.value = null;
    try {
      if ((await request(body)) === false) return;
      say(said);
      close();
    } catch (problem) {
      if (!(problem instanceof Problem)) throw problem;
      trouble.value = problem;
    } finally {
      busy.value = false;
      done();
    }
  };
  return { busy, trouble, send };
}
