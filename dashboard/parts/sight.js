// Which locks a key may see that may not see every lock.

import { html } from "../view.js";
import { count } from "../model/format.js";
import { session } from "../model/session.js";

/** So many prefixes are named; a key may have any number. */
const MOST = 8;

/** Behind what is said or counted of the locks, where there may be others. */
export const SEEN = "that your key may see";

/** A sentence that says which. */
export function Sight() {
  const view = session.value.permissions?.view ?? [];
  const named = view.slice(0, MOST).map((prefix) => html`<code>${prefix}</code>`);
  const more = view.length - named.length;
  if (more > 0) named.push(`${count(more)} more`);
  const parts = named.map((part, index) => [index === 0 ? "" : index === named.length - 1 ? " or " : ", ", part]);
  return html`<span class="sight">Your key may see the locks whose names begin with ${parts}.</span>`;
}
