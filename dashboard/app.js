// The page: who is signed in decides whether it lives, the address which part of it is shown.

import { effect, html, render, untracked } from "./view.js";
import { tick } from "./model/clock.js";
import { close, connection, listen, open } from "./model/connection.js";
import { forgetEvents, hear } from "./model/feed.js";
import { forgetFigures, lookAtFigures } from "./model/figures.js";
import { forgetLeases } from "./model/leases.js";
import { apply, catchUp, forgetLocks, load, tidy } from "./model/locks.js";
import { route } from "./model/route.js";
import { begin, seesSomething, session } from "./model/session.js";
import { bring, Page } from "./pages/page.js";
import { Failed, Loading } from "./parts/notice.js";
import { Said } from "./parts/said.js";
import { Shell } from "./parts/shell.js";
import { Help } from "./parts/shortcuts.js";

const TITLES = { overview: "Overview", locks: "Locks", events: "Events", missing: "Not found" };
/**
 * A page that nobody looks at takes no place at the gateway after so long: over HTTP/1.1 a browser makes six
 * connections to a host, for all its tabs. When it is looked at again it reads on where it was.
 */
const OUT_OF_SIGHT = 60_000;

function App() {
  const { state, problem } = session.value;
  if (state === "unknown") return html`<main class="alone"><${Loading} what="Asking the gateway…" /></main>`;
  if (state === "failed") return html`<main class="alone"><${Failed} problem=${problem} again=${() => begin()} /></main>`;
  if (state === "out") return html`<${Page} page="sign_in" /><${Said} />`;
  const { page, name } = route.value;
  return html`<${Shell}><${Page} page=${page} name=${name} /><//><${Said} /><${Help} />`;
}

let leaving = null;

/** Opens the stream while the page is looked at, and closes it a while after it was. */
function follow() {
  clearTimeout(leaving);
  if (document.hidden) leaving = setTimeout(close, OUT_OF_SIGHT);
  else if (session.value.state === "in" && seesSomething()) open();
}

listen({
  event(event, past) {
    hear(event);
    apply(event, past);
  },
  resync: (why) => (why === "first" ? load() : catchUp()),
});

// Somebody is signed in: the page lives. Nobody is: it forgets what it has seen.
effect(() => {
  const here = session.value.state === "in";
  untracked(() => {
    if (here) return follow();
    close({ forget: true });
    forgetLocks();
    forgetEvents();
    forgetFigures();
    forgetLeases();
  });
});

effect(() => {
  tick.value;
  untracked(() => {
    if (session.value.state !== "in") return;
    lookAtFigures();
    tidy(connection.value.state === "live");
  });
});

effect(() => {
  const { page, name } = route.value;
  const title = session.value.state === "out" ? "Sign in" : (name ?? TITLES[page]);
  document.title = `${title} · Latchgate`;
});

document.addEventListener("visibilitychange", follow);

// How soon the page can be used is measured, by us and by whoever wants to.
const drawn = effect(() => {
  if (session.value.state === "unknown") return;
  requestAnimationFrame(() => performance.mark("latchgate-interactive"));
  queueMicrotask(() => drawn());
});

render(html`<${App} />`, document.getElementById("app"));
// While the gateway is asked who this is, the page comes.
bring(route.value.page);
begin();
