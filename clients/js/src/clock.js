// Time: a monotonic clock, pauses, and a comparison with the wall clock that shows whether the machine slept.

// The longest time that setTimeout accepts, in milliseconds.
const LONGEST = 2 ** 31 - 1;

export const now = () => performance.now();

/**
 * How far the wall clock is ahead of the monotonic clock. The difference grows while the machine sleeps, or when the
 * wall clock is set.
 */
export const wallOffset = () => Date.now() - now();

/** Starts a timer that does not keep the process alive. */
export function backgroundTimer(run, ms) {
  const timer = setTimeout(run, ms);
  timer.unref?.();
  if (typeof timer === 'number') globalThis.Deno?.unrefTimer(timer);
  return timer;
}

/**
 * Resolves after `ms`, and rejects when `signal` is aborted. With `background`, the timer does not keep the process
 * alive.
 */
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

/**
 * The pause before attempt number `failed + 1`, at least the time that the gateway asked for. The pause is random, so
 * that clients do not all come back at the same moment when their gateway does.
 */
export const backoff = (failed, askedMs = 0) =>
  Math.random() * Math.min(200 * 2 ** (failed - 1), 2000) + askedMs * (1 + Math.random() / 2);
