// An event in words.

import { html } from "../view.js";
import { fine } from "../model/format.js";
import { Icon } from "./icon.js";
import { Reserved } from "./reserved.js";
import { Foreign } from "./text.js";

/** What has happened, as a drawing and a word. */
export function Kind({ kind }) {
  return html`<span class="kind ${kind}"><${Icon} name=${kind} />${kind}</span>`;
}

/** A shorter wait than this, in milliseconds, is not one to be spoken of. */
const NOTICED = 100;

/** The rest of what an event says. */
export function Details({ event }) {
  const { kind, position, waited_ms: waited, expires_in_ms: left, reason, by, order } = event;
  const mode = modeOf(event);
  if (kind === "queued") return `position ${position}${mode}`;
  if (kind === "acquired" && event.reservation) return html`<${Reserved} reservation=${event.reservation} />`;
  if (kind === "acquired") {
    const grant = `for ${fine(left)}${waited >= NOTICED ? `, waited ${fine(waited)}` : ""}${mode}`;
    if (order === undefined) return grant;
    return reason ? html`${grant}, rollback to ${order}: <${Foreign} value=${reason} />` : `${grant}, order ${order}`;
  }
  if (kind === "renewed") return `for another ${fine(left)}${mode}`;
  if (kind === "stale-write-refused") {
    return html`with ${event.fencing_token === undefined ? "a fencing token" : `the fencing token ${event.fencing_token}`}, whose lease is over${by && html`, checked by <${Foreign} value=${by} />`}`;
  }
  if (kind === "store-changed") return html`<${Foreign} value=${event.change?.text} none="" />`;
  const why = html`${by && html`by <${Foreign} value=${by} />: `}<${Foreign} value=${reason} />${meaningOf(event)}${mode}`;
  if (kind === "order-set") return html`${order === null ? "forgotten" : `to ${order}`}${by ? " " : ": "}${why}`;
  if (kind === "release-requested") return html`within ${fine(left)}${by ? ", " : ": "}${why}`;
  if (kind === "gap") return html`events may be missing here${reason && html` (<${Foreign} value=${reason} />)`}`;
  if (!reason) return mode ? mode.slice(2) : null;
  return why;
}

/** What a reason of the gateway's own means. */
export const meaningOf = ({ kind, ended = kind, by, ended_by: who = by, reason }) =>
  ended === "released" && reason === "abandoned" && !who ? " (by the gateway: its caller was gone)" : "";

/** Whether others hold the lock beside it, and which slot it has. */
function modeOf({ mode, slot }) {
  if (mode !== "shared") return "";
  return slot === null || slot === undefined ? ", shared" : `, slot ${slot}`;
}
