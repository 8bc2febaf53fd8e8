// An event in words.

import { html } from "../view.js";
import { fine } from "../model/format.js";
import { Icon } from "./icon.js";
import { Foreign } from "./text.js";

/** What has happened, as a drawing and a word. */
export function Kind({ kind }) {
  return html`<span class="kind ${kind}"><${Icon} name=${kind} />${kind}</span>`;
}

/** A shorter wait than this, in milliseconds, is not one to be spoken of. */
const NOTICED = 100;

/** The rest of what an event says. */
export function Details({ event }) {
  const { kind, position, waited_ms: waited, expires_in_ms: left, reason } = event;
  if (kind === "queued") return `place ${position}`;
  if (kind === "acquired") return waited >= NOTICED ? `for ${fine(left)}, waited ${fine(waited)}` : `for ${fine(left)}`;
  if (kind === "renewed") return `for another ${fine(left)}`;
  if (kind === "gap") return html`events may be missing here${reason && html` (<${Foreign} value=${reason} />)`}`;
  return reason ? html`<${Foreign} value=${reason} />` : null;
}
