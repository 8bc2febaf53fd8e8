// Short words: about what was just done, shown for a moment, and about what has changed, for screen readers alone.

import { html, signal } from "../view.js";
import { now } from "../model/clock.js";

/** So long something must have stayed as it is, and so far apart two words about it are. */
const SETTLED = 1_500;
const APART = 10_000;

const said = signal("");
const told = signal("");
/** By topic: what was told last and when, and what is about to be. */
const topics = new Map();
let timer = null;

/** Says something. */
export function say(text) {
  clearTimeout(timer);
  said.value = text;
  timer = setTimeout(() => (said.value = ""), 4_000);
}

/**
 * Tells what a topic has become, `text` or what it returns then: not before that has lasted, and never twice in a row.
 * What comes and goes all the time would keep somebody who listens from hearing anything else.
 */
export function tell(topic, text) {
  const known = topics.get(topic) ?? { last: null, at: -Infinity, timer: null };
  topics.set(topic, known);
  clearTimeout(known.timer);
  known.timer = setTimeout(() => {
    const words = typeof text === "function" ? text() : text;
    if (words === known.last) return;
    known.last = words;
    known.at = now();
    told.value = words;
  }, Math.max(SETTLED, known.at + APART - now()));
}

/** Takes for told what everybody can see from the beginning. */
export function assume(topic, text) {
  if (!topics.has(topic)) topics.set(topic, { last: text, at: -Infinity, timer: null });
}

/** Where it is said. It is always there, or a screen reader would miss the first word. */
export function Said() {
  return html`<div class="said" role="status" aria-live="polite">${said.value && html`<span>${said.value}</span>`}</div>
    <div class="out-of-sight" role="status" aria-live="polite">${told.value}</div>`;
}
