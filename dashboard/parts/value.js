// A value of the metadata: a link where it is the address of a page.

import { html } from "../view.js";
import { pieces } from "../model/visible.js";
import { Foreign } from "./text.js";

/** Anybody may have written it, so it is a link only if all of it can be seen and it leads where it says. */
export function Value({ value }) {
  const text = html`<${Foreign} value=${value} none="(empty)" whole />`;
  const to = address(value);
  return to ? html`<a href=${to} target="_blank" rel="noopener noreferrer">${text}</a>` : text;
}

/** Where a value leads, or null. */
export function address(value) {
  if (!/^https?:\/\/[^\s\\]+$/i.test(value) || pieces(value).some((piece) => piece.odd)) return null;
  if (!URL.canParse(value)) return null;
  const to = new URL(value);
  if (!["http:", "https:"].includes(to.protocol)) return null;
  // Another spelling of the host: letters that look like others, a number, %65.
  if (!value.toLowerCase().startsWith(to.origin)) return null;
  // What stands before an @ looks like the host.
  return to.username || to.password ? null : to.href;
}
