// One window of a browser reads the stream of events, and tells the others: over HTTP/1.1 a browser makes six connections
// to a host, for all its windows.

/** Whether windows can share a stream: a browser elects (Web Locks) in secure contexts only. */
export const isShared = Boolean(navigator.locks);

/** How often the leader gives a sign of life. A visible window that misses so many in a row leads in its place. */
const BEAT = 1_000;
const PATIENCE = 5;
/** A leader that nobody looks at, and no other window waits for, lets go of the stream after so long. */
const OUT_OF_SIGHT = 60_000;

/**
 * Joins the windows of this browser that share the stream `name`. In the window that is elected `lead(signal)` is called,
 * until the signal is aborted. What it says is heard in the others: `hear(message, leads)`. `state()` is told to each
 * window that comes. `paused()` is called when the stream was let go of. While `stays()` is true, a window leads although nobody looks at it.
 * Returns `say`, and `leave`.
 */
export function join(name, { lead, hear, state, paused, stays }) {
  const channel = new BroadcastChannel(name);
  let term = null;
  let leads = false;
  let silent = 0;
  let leaving = null;
  const say = (message) => channel.postMessage(message);

  /** Gives up the lead, or the place in the queue for it. */
  function resign() {
    clearTimeout(leaving);
    term?.abort();
    term = null;
    leads = false;
  }

  function stand(options) {
    const mine = (term = new AbortController());
    const { signal } = mine;
    const rule = () =>
      new Promise((over) => {
        if (signal.aborted) return over();
        signal.addEventListener("abort", over);
        leads = true;
        lead(signal);
      });
    const request = navigator.locks.request(name, options ?? { signal }, rule);
    // A browser that may not elect reads a stream for each window.
    request.catch((error) => error.name !== "AbortError" && rule()).then(() => {
      if (term !== mine) return;
      // Another window has taken the lead: this one had frozen.
      resign();
      if (!document.hidden || stays()) come();
    });
  }

  /** Stands in the queue, and asks how the stream is. Only windows that are looked at lead: others are slowed down. */
  function come() {
    silent = 0;
    if (!term) stand();
    say({ hello: true });
  }

  function beat() {
    if (leads) return say({});
    // Counted in beats of this window: one that was frozen itself has missed none.
    if ((document.hidden && !stays()) || ++silent < PATIENCE) return;
    silent = 0;
    resign();
    stand({ steal: true });
  }

  async function look() {
    clearTimeout(leaving);
    if (!document.hidden || stays()) return come();
    if (!leads) return resign();
    leaving = setTimeout(() => {
      resign();
      paused();
    }, OUT_OF_SIGHT);
    const { pending } = await navigator.locks.query();
    if (leads && document.hidden && pending.some((one) => one.name === name)) resign();
  }

  channel.onmessage = ({ data }) => {
    if (data.hello) {
      if (leads && document.hidden) {
        resign();
        if (stays()) stand();
      } else if (leads) say(state());
      return;
    }
    silent = 0;
    hear(data, leads);
  };
  const beating = setInterval(beat, BEAT);
  document.addEventListener("visibilitychange", look);
  come();

  return {
    say,
    leave() {
      clearInterval(beating);
      clearTimeout(leaving);
      document.removeEventListener("visibilitychange", look);
      resign();
      channel.close();
    },
  };
}
