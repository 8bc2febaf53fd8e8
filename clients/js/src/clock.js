// Time: a monotonic clock, pauses, and a look at the wall clock for machines that slept.

// setTimeout takes no more.
const LONGEST = 2 ** 31 - 1;

export const now = () => performance.now();

/** By how much the wall clock is ahead of the monotonic one. It grows while a machine sleeps, or if somebody sets the clock. */
export const wallOffset = () => Date.now() - now();

/** A timer that does not keep the process alive. */
export function backgroundTimer(run, ms) {
  const timer = setTimeout(run, ms);
  timer.unref?.();
  if (typeof timer === 'number') globalThis.Deno?.unrefTimer(timer);
  return timer;
}

/** Resolves after `ms`; rejects as soon as `signal` is aborted. In the background it does not keep the process alive. */
export function sleep(ms, signal, background = false) {
  return new Promise((resolve, reject) => {
    const abort = () => {
      clearTimeout(timer);
      reject(signal.reason);
    };
    const done = () => {
      signal?.removeEventListener('abort', abort);
      resolve();
    };
    const timer = (background ? backgroundTimer : setTimeout)(done, Math.min(ms, LONGEST));
    if (signal?.aborted) abort();
    else signal?.addEventListener('abort', abort, { once: true });
  });
}

/** A pause before attempt number `failed + 1`, and no shorter than is asked for. It is random, so that clients whose gateway came back do not come all at once. */
export const backoff = (failed, askedMs = 0) =>
  Math.random() * Math.min(200 * 2 ** (failed - 1), 2000) + askedMs * (1 + Math.random() / 2);
