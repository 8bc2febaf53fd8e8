// The keyboard: what single keys do, and the dialog that says so.

import { html, signal } from "../view.js";
import { keep, kept } from "../model/kept.js";
import { go, href, route } from "../model/route.js";
import { Dialog } from "./dialog.js";

/** Whether the dialog is open. */
export const help = signal(false);

const on = signal(kept("shortcuts") !== "off");
/** Whether the dialog is open that asks for the name of a lock. */
export const opening = signal(false);
const PAGES = { o: "", l: "locks", e: "events" };
let leader = 0;

const KEYS = [
  ["/", "Search"],
  ["↓ ↑", "Move through the rows"],
  ["Enter", "Open the row"],
  ["Esc", "Leave the search, the row or the dialog; from a lock, back to the locks"],
  ["g o", "Go to the overview"],
  ["g l", "Go to the locks"],
  ["g e", "Go to the events"],
  ["o", "Open a lock by its name"],
  ["?", "This help"],
];

/** The dialog, when it is asked for. */
export function Help() {
  if (!help.value) return null;
  const toggle = () => {
    on.value = !on.value;
    keep("shortcuts", on.value ? "on" : "off");
  };
  return html`<${Dialog} title="Keyboard" close=${() => (help.value = false)}>
    <dl class="shortcuts">
      ${KEYS.map(
        ([keys, what]) => html`<div key=${keys}>
          <dt>${keys.split(" ").map((key) => html`<kbd>${key}</kbd>`)}</dt>
          <dd>${what}</dd>
        </div>`,
      )}
    </dl>
    <label class="check"><input type="checkbox" checked=${on.value} onChange=${toggle} /> Shortcuts of a single key</label>
  <//>`;
}

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  if (document.querySelector("dialog[open]")) return;
  const typing = event.target.closest?.("input, textarea, select, [contenteditable]");
  if (typing && typing.type !== "checkbox") {
    if (event.key === "Escape") typing.blur();
    else if (event.key === "ArrowDown" && typing.type === "search" && enterGrid()) event.preventDefault();
    return;
  }
  if (event.key === "ArrowDown" && event.target === document.body && enterGrid()) event.preventDefault();
  if (event.key === "Escape" && route.value.page === "lock") go(href("locks"));
  if (!on.value) return;
  const led = performance.now() - leader < 1_200;
  leader = 0;
  if (led && event.key in PAGES) go(href(PAGES[event.key]));
  else if (event.key === "g") leader = performance.now();
  else if (event.key === "?") help.value = true;
  else if (event.key === "o") opening.value = true;
  else if (event.key === "/") search();
  else return;
  event.preventDefault();
});

function search() {
  const field = document.querySelector("main input[type=search]");
  if (field) return field.select();
  go(href("locks"));
  requestAnimationFrame(() => document.querySelector("main input[type=search]")?.focus());
}

function enterGrid() {
  const grid = document.querySelector("main .grid");
  grid?.dispatchEvent(new Event("grid-enter"));
  return Boolean(grid);
}
