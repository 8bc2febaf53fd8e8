// What stands around every page: the way to the others, who is signed in, and whether the page is live.

import { html, useSignal } from "../view.js";
import { connection, retry } from "../model/connection.js";
import { now, tick } from "../model/clock.js";
import { duration } from "../model/format.js";
import { href, route } from "../model/route.js";
import { session, signOut } from "../model/session.js";
import { Foreign } from "./text.js";
import { Icon, Logo } from "./icon.js";
import { say } from "./said.js";
import { help } from "./shortcuts.js";

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
        <div class="tools"><${Theme} /><${Keys} /></div>
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

const WORDS = { live: "Live", connecting: "Connecting", lost: "Reconnecting", off: "Paused", refused: "Not live" };

function Live() {
  const { state } = connection.value;
  return html`<span class="live is-${state}" role="status"><span class="dot" aria-hidden="true"></span>${WORDS[state]}</span>`;
}

function Lost() {
  const { state, since, problem } = connection.value;
  if (state === "refused") {
    return html`<div class="banner" role="status">
      <${Icon} name="warning" /><span><strong>${problem.title}.</strong> ${problem.detail}</span>
    </div>`;
  }
  if (state !== "lost") return null;
  tick.value;
  const away = now() - since;
  // A gateway that restarts is back before anybody has to know.
  if (away < 700) return null;
  return html`<div class="banner" role="alert">
    <${Icon} name="warning" />
    <span>
      <strong>Connection lost, reconnecting.</strong> ${" "}
      <span aria-hidden="true">What you see is ${duration(away)} old. ${problem?.code === "unreachable" ? "" : problem?.title}</span>
    </span>
    <button type="button" onClick=${retry}>Try now</button>
  </div>`;
}

function Person() {
  const { authentication, name } = session.value;
  if (!authentication) {
    return html`<span class="person" title="This gateway has no API keys: everybody may do everything">No keys: all allowed</span>`;
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
