// Foreign text: names, owners, metadata and reasons, which anybody may have written.

import { html } from "../view.js";
import { pieces, plain } from "../model/visible.js";

/** Only ever text, apart from what stands around it in whatever direction it is written; cut if it is long. */
export function Foreign({ value, none = "–", whole = false }) {
  if (value === null || value === undefined || value === "") return html`<span class="none">${none}</span>`;
  const text = String(value);
  const shown = pieces(text).map((piece) =>
    piece.odd ? html`<span class="odd">${piece.odd}</span>` : piece.text,
  );
  return html`<bdi class=${whole ? "text whole" : "text"} title=${plain(text)}>${shown}</bdi>`;
}
