// What stands around every page: the way to the others, who is signed in, and whether the page is live.

import { html, useEffect, useSignal } from "../view.js";
import { connection, retry } from "../model/connection.js";
import { now, tick } from "../model/clock.js";
import { duration, isUtc, ownZone, switchZone, zoneName } from "../model/format.js";
import { href, route } from "../model/route.js";
import { seesSomething, session, signOut } from "../model/session.js";
import { store } from "../model/store.js";
import { Foreign } from "./text.js";
import { Icon, Logo } from "./icon.js";
import { assume, say, tell } from "./said.js";
import { help } from "./shortcuts.js";
import { Moment } from "./times.js";

const PAGES = [
  { page: "overview", path: "", title: "Overview" },
  { page: "locks", path: "locks", title: "Locks" },
  { page: "events", path: "events", title: "Events" },
];

/** The frame of a page. */
export function Shell({ children }) {
  return html`<div class="shell">
    <a
      class="skip"
      href="#main"
      onClick=${(event) => {
        event.preventDefault();
        document.querySelector("main h1")?.focus();
      }}
      >Skip to the content</a
    >
    <header class="side">
      <a class="brand" href=${href()} aria-label="Latchgate, to the overview"><${Logo} /><span>Latchgate</span></a>
      <nav aria-label="Pages">${PAGES.map((page) => html`<${Link} key=${page.page} ...${page} />`)}</nav>
      <div class="foot">
        <${Live} />
        <${Person} />
        <div class="tools"><${Theme} /><${Zone} /><${Keys} /></div>
      </div>
    </header>
    <div class="content">
      <${Lost} />
      <main>${children}</main>
    </div>
  </div>`;
}

function Link({ page, path, title }) {
  const shown = route.value.page === "lock" ? "locks" : route.value.page;
  return html`<a href=${href(path)} aria-current=${shown === page ? "page" : undefined}>
    <${Icon} name=${page} /><span>${title}</span>
  </a>`;
}

const WORDS = {
  live: "Live",
  connecting: "Connecting",
  lost: "Reconnecting",
  off: "Paused",
  refused: "Not live",
  silent: "Store silent",
  refusing: "Grants refused",
  blind: "No events",
};

/** Who may see no lock hears of none: that is no pause. And nothing is live without the store. */
function standing() {
  const { state } = connection.value;
  if (!seesSomething()) return "blind";
  if (store.value.state === "silent" && state !== "lost") return "silent";
  // What is shown is live all the same.
  return store.value.state === "refusing" && state === "live" ? "refusing" : state;
}

/** What is told of it: a page that has just been opened need not say that it is about to be live. */
const TOLD = {
  live: "The page is live",
  lost: "Reconnecting: the connection is lost",
  off: "Paused",
  refused: "The page is not live",
  silent: "The store does not answer",
  refusing: "The quorum refuses grants",
};

function Live() {
  const state = standing();
  useEffect(() => {
    assume("connection", TOLD.live);
    if (state in TOLD) tell("connection", TOLD[state]);
  }, [state]);
  return html`<span class="live is-${state}" title=${state === "blind" ? "Your key may not see any lock" : undefined}><span class="dot" aria-hidden="true"></span>${WORDS[state]}</span>`;
}

function Lost() {
  const { state, since, problem } = connection.value;
  if (store.value.state === "silent" && state !== "lost") return html`<${Silent} ...${store.value} />`;
  if (state === "refused") {
    return html`<div class="banner">
      <${Icon} name="warning" /><span><strong>${problem.title}.</strong> ${problem.detail}</span>
    </div>`;
  }
  if (state !== "lost" && store.value.state === "refusing") return html`<${Refusing} ...${store.value} />`;
  if (state !== "lost") return null;
  tick.value;
  const away = now() - since;
  // A gateway that restarts is back before anybody has to know.
  if (away < 700) return null;
  return html`<div class="banner">
    <${Icon} name="warning" />
    ${problem?.status >= 400
      ? html`<span>
          <strong>No events: ${problem.title}.</strong> ${" "}
          <span><${Foreign} value=${problem.detail} whole /> The locks are asked for now and then.</span>
        </span>`
      : html`<span>
          <strong>${problem?.title ?? "Connection lost"}, reconnecting.</strong> ${" "}
          <span>What you see is ${duration(away)} old. ${problem?.detail}</span>
        </span>`}
    <button type="button" onClick=${retry}>Try now</button>
  </div>`;
}

function Silent({ since, detail }) {
  tick.value;
  return html`<div class="banner">
    <${Icon} name="warning" />
    <span>
      <strong>The store has not responded since <${Moment} at=${since} />.</strong> ${" "}
      <span>This page may be ${duration(now() - since)} old, and requests may fail. The gateway says: <${Foreign} value=${detail} whole />.</span>
    </span>
  </div>`;
}

function Refusing({ until, detail }) {
  tick.value;
  // The last second may take a little longer: then the gateway says so.
  const left = until === null ? "" : ` for another ${duration(Math.max(1_000, until - now()))}`;
  return html`<div class="banner">
    <${Icon} name="warning" />
    <span>
      <strong>The quorum refuses grants${left}.</strong> ${" "}
      <span>Leases that are held live on, and can be renewed and released. The gateway says: <${Foreign} value=${detail} whole />.</span>
    </span>
  </div>`;
}

function Person() {
  const { authentication, name } = session.value;
  if (!authentication) {
    return html`<span class="person" title="This gateway has no API keys: every caller may do everything">No keys: all allowed</span>`;
  }
  const leave = async () => {
    try {
      await signOut();
    } catch (problem) {
      say(`${problem.title}: you are still signed in.`);
    }
  };
  return html`<span class="person">
    <${Foreign} value=${name} none="signed in" />
    <button type="button" class="bare" aria-label="Sign out" title="Sign out" onClick=${leave}><${Icon} name="leave" /></button>
  </span>`;
}

const NEXT = { system: "light", light: "dark", dark: "system" };

/** Switches between the system's theme, light and dark. */
export function Theme() {
  const choice = useSignal(latchgateTheme.choice());
  const next = () => {
    choice.value = NEXT[choice.value];
    latchgateTheme.choose(choice.value);
  };
  const label = `Theme: ${choice.value}. Switch to ${NEXT[choice.value]}`;
  return html`<button type="button" class="bare" aria-label=${label} title=${label} onClick=${next}>
    <${Icon} name=${choice.value} />
  </button>`;
}

/** Switches between the zone of the browser and UTC, where they differ. */
function Zone() {
  const own = ownZone();
  if (own === "UTC") return null;
  const label = `Times in ${zoneName()}. Switch to ${isUtc.value ? own : "UTC"}`;
  return html`<button type="button" class="bare zone" aria-label=${label} title=${label} onClick=${switchZone}>${zoneName()}</button>`;
}

function Keys() {
  return html`<button
    type="button"
    class="bare keys"
    aria-label="Keyboard shortcuts"
    title="Keyboard shortcuts (?)"
    onClick=${() => (help.value = true)}
  >
    <${Icon} name="keyboard" />
  </button>`;
}
