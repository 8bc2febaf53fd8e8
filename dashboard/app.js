// The page: who is signed in decides whether it lives, the address which part of it is shown.

import { effect, html, render, untracked } from "./view.js";
import { keepAttention } from "./model/attention.js";
import { tick } from "./model/clock.js";
import { answers, close, connection, listen, open, stayWhile } from "./model/connection.js";
import { forgetEvents, hear, keepEvents, lookBack } from "./model/feed.js";
import { forgetFigures, keepFigures, lookAtFigures } from "./model/figures.js";
import { forgetLeases, keepLeases } from "./model/leases.js";
import { apply, catchUp, forgetLocks, isIdle, keepLocks, listing, load, tidy } from "./model/locks.js";
import { isArmed, keepNotices, lookAtArmed } from "./model/notices.js";
import { isShared } from "./model/relay.js";
import { route } from "./model/route.js";
import { cancelSearch, seekAgain } from "./model/search.js";
import { begin, beginAnew, lookAgain, lookAtSession, may, seesFigures, seesSomething, session } from "./model/session.js";
import { forgetStore, lookAtStore, store } from "./model/store.js";
import { Page } from "./pages/page.js";
import { Failed, Loading } from "./parts/notice.js";
import { OpenLock } from "./parts/open_lock.js";
import { Said } from "./parts/said.js";
import { Shell } from "./parts/shell.js";
import { Help, opening } from "./parts/shortcuts.js";

const TITLES = { overview: "Overview", locks: "Locks", events: "Events", missing: "Not found" };
function App() {
  const { state, problem } = session.value;
  if (state === "unknown") return html`<main class="alone"><${Loading} what="Asking the gateway…" /></main>`;
  if (state === "failed") return html`<main class="alone"><${Failed} problem=${problem} again=${() => begin()} /></main>`;
  if (state === "out") return html`<${Page} page="sign_in" /><${Said} />`;
  const { page, name } = route.value;
  return html`<${Shell}><${Page} page=${page} name=${name} /><//><${Said} /><${Help} />${opening.value && html`<${OpenLock} close=${() => (opening.value = false)} />`}`;
}

/** Hears events once the page is looked at. Where windows share no stream, it stops as soon as nobody looks. */
function follow() {
  if (document.hidden) isShared || close();
  else if (session.value.state === "in" && seesSomething()) open();
}

stayWhile(isArmed);
listen({
  event(event) {
    hear(event);
    apply(event);
  },
  resync(why) {
    if (why === "first") return load();
    catchUp();
    lookAtArmed();
    // What the stream would have told of the key meanwhile was not heard either.
    if (why === "again") lookAgain();
  },
  session: lookAgain,
  // Then the locks are asked for, again and again.
  unheard: () => isIdle() && load(),
});

/** What the key may do has changed: what it may not see any more goes at once, and what it may see now comes. */
function reconsider() {
  const isSeen = (name) => may("view", name);
  keepEvents(isSeen);
  keepAttention(isSeen);
  keepNotices(isSeen);
  keepLeases((name) => may("acquire", name));
  if (seesFigures()) keepFigures(isSeen);
  else forgetFigures();
  cancelSearch();
  keepLocks(isSeen);
  if (seesSomething()) return load();
  close({ forget: true });
  forgetLocks();
}

let permitted = null;

// Somebody is signed in: the page lives. Nobody is: it forgets what it has seen.
effect(() => {
  const { state, permissions } = session.value;
  untracked(() => {
    const before = permitted;
    permitted = state === "in" ? JSON.stringify(permissions) : null;
    if (state === "in") {
      if (before !== null && before !== permitted) reconsider();
      return follow();
    }
    close({ forget: true });
    cancelSearch();
    forgetLocks();
    forgetEvents();
    keepAttention();
    keepNotices();
    forgetFigures();
    forgetLeases();
    forgetStore();
  });
});

effect(() => {
  tick.value;
  untracked(() => {
    if (session.value.state !== "in") return;
    lookAtFigures();
    lookAtStore();
    const { state } = connection.value;
    // The locks come first.
    if (state === "live" && listing.value.state === "ready" && !listing.value.partial) lookBack();
    if (state !== "lost" || answers()) lookAtSession({ told: state === "live" });
    // Where the store does not answer, nobody knows what has ended.
    tidy({ live: state === "live" && store.value.state !== "silent", answers: answers() });
    seekAgain({ answers: answers() });
  });
});

effect(() => {
  const { page, name } = route.value;
  const title = session.value.state === "out" ? "Sign in" : (name ?? TITLES[page]);
  document.title = `${title} · Latchgate`;
});

document.addEventListener("visibilitychange", follow);
// A browser keeps a page that was left as it was, and shows it again when somebody goes back.
addEventListener("pagehide", () => close());
addEventListener("pageshow", (event) => event.persisted && beginAnew());

// How soon the page can be used is measured, by us and by whoever wants to.
const drawn = effect(() => {
  if (session.value.state === "unknown") return;
  requestAnimationFrame(() => performance.mark("latchgate-interactive"));
  queueMicrotask(() => drawn());
});

render(html`<${App} />`, document.getElementById("app"));
begin();
