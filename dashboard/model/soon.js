// Something that is to be done once, a little later, however often it is asked for.

/** Calls `act` at most once in `ms`, the first time `ms` after it was asked for. */
export function soon(act, ms) {
  let timer = null;
  return () => {
    timer ??= setTimeout(() => {
      timer = null;
      act();
    }, ms);
  };
}
