// Who holds a lock, in a cell of a table.

import { html } from "../view.js";
import { plural } from "../model/format.js";
import { Foreign } from "./text.js";

/** The owner, how many share it, or that it rests. */
export function Holders({ lock, foreign = "not said" }) {
  if (lock.rests) return html`<span class="none">nobody</span>`;
  if (lock.shared && lock.count > 1) return html`<span class="several">${plural(lock.count, "holder", "holders")}</span>`;
  return html`<${Foreign} value=${lock.owner} none=${lock.foreign ? foreign : "not said"} />`;
}
