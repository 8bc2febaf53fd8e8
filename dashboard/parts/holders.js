// Who holds a lock: by name, and in a cell of a table.

import { html } from "../view.js";
import { plural } from "../model/format.js";
import { Foreign } from "./text.js";

/** The owner of a lease as it says itself, or who has reserved the lock; null if neither is known. */
export const ownerOf = ({ owner, reservation }) => owner ?? reservation?.reserved_by ?? null;

/** The owner, how many share it, or that it rests. */
export function Holders({ lock, foreign = "not said" }) {
  if (lock.rests) return html`<span class="none">nobody</span>`;
  if (lock.shared && lock.count > 1) return html`<span class="several">${plural(lock.count, "holder", "holders")}</span>`;
  return html`<${Foreign} value=${ownerOf(lock)} none=${lock.foreign ? foreign : "not said"} />`;
}
