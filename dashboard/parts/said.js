// Short words about what was just done: shown for a moment, and read out by screen readers.

import { html, signal } from "../view.js";

const said = signal("");
let timer = null;

/** Says something. */
export function say(text) {
  clearTimeout(timer);
  said.value = text;
  timer = setTimeout(() => (said.value = ""), 4_000);
}

/** Where it is said. It is always there, or a screen reader would miss the first word. */
export function Said() {
  return html`<div class="said" role="status" aria-live="polite">${said.value && html`<span>${said.value}</span>`}</div>`;
}
