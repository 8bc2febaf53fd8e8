// Foreign text made safe to look at: whatever does not show, or moves what stands around it, is named.

// Controls, marks that turn the direction of writing, spaces without width, separators that break
// lines, soft hyphens, tags, fillers, private use at the end and halves of pairs.
const ODD =
  /[\u0000-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u205f-\u206f\u2800\u3164\ufe00-\ufe0e\ufeff\uffa0\ufff0-\ufffb\ud800-\udfff\u{e0000}-\u{e0fff}]/gu;

// Joiners belong to many scripts and to emoji: they are odd only next to plain letters or nothing.
const JOINERS = new Set(["\u200c", "\u200d"]);

/** The text in pieces: `{text}` as it is, `{odd}` for the name of a character that does not show. */
export function pieces(text) {
  const found = [];
  let from = 0;
  for (const match of text.matchAll(ODD)) {
    const [char] = match;
    if (JOINERS.has(char) && joins(text, match.index)) continue;
    if (match.index > from) found.push({ text: text.slice(from, match.index) });
    found.push({ odd: named(char) });
    from = match.index + char.length;
  }
  if (from < text.length) found.push({ text: text.slice(from) });
  return found;
}

/** The same in one line of plain text, for titles and labels. */
export function plain(text) {
  return pieces(text)
    .map((piece) => piece.text ?? `⟨${piece.odd}⟩`)
    .join("");
}

function named(char) {
  return `U+${char.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`;
}

function joins(text, at) {
  return text.charCodeAt(at - 1) > 0x24f && text.charCodeAt(at + 1) > 0x24f;
}
