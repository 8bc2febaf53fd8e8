// Saves rows as a file: for a spreadsheet, or as JSON.

import { html, useRef } from "../view.js";
import { plural } from "../model/format.js";
import { Icon } from "./icon.js";
import { say } from "./said.js";

/**
 * A spreadsheet takes a cell that begins so for a formula, which anybody may have written into an owner or a reason. Where
 * it expects semicolons, a cell begins behind each of them too.
 */
const FORMULA = /(^|;)(?=[=+\-@\t\r])/g;

function cell(value) {
  if (value === null || value === undefined) return "";
  const text = typeof value === "object" ? JSON.stringify(value) : String(value);
  const safe = typeof value === "string" ? text.replace(FORMULA, "$1'") : text;
  return /[",;\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

/** The rows with these fields, as lines of comma-separated values. */
export function csv(fields, rows) {
  return [fields, ...rows.map((row) => fields.map((field) => row[field]))].map((cells) => `${cells.map(cell).join(",")}\r\n`).join("");
}

function save(what, kind, type, text) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = `latchgate-${what}-${new Date().toISOString().slice(0, 19).replaceAll(":", "")}.${kind}`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/**
 * A button with the two formats behind it. `rows()` are objects, `fields` those of a spreadsheet; `one` and `many` are the
 * words for them. `isLines`: the JSON is a line for each.
 */
export function Export({ what, one, many, fields, rows, isLines }) {
  const menu = useRef(null);
  const as = (kind) => () => {
    const found = rows();
    // The mark has Excel read the file as UTF-8.
    if (kind === "csv") save(what, "csv", "text/csv;charset=utf-8", `\uFEFF${csv(fields, found)}`);
    else if (isLines) save(what, "jsonl", "application/jsonl", found.map((row) => `${JSON.stringify(row)}\n`).join(""));
    else save(what, "json", "application/json", `${JSON.stringify(found, null, 2)}\n`);
    menu.current.open = false;
    say(`Exported ${plural(found.length, one, many)}.`);
  };
  const leave = (event) => {
    if (event.key === "Escape" && menu.current.open) {
      menu.current.open = false;
      menu.current.firstElementChild.focus();
      event.stopPropagation();
    }
  };
  return html`<details class="menu" ref=${menu} onKeyDown=${leave}>
    <summary><${Icon} name="export" />Export</summary>
    <div class="choices">
      <button type="button" class="quiet" onClick=${as("csv")}>CSV, for a spreadsheet</button>
      <button type="button" class="quiet" onClick=${as("json")}>${isLines ? "JSON lines" : "JSON"}</button>
    </div>
  </details>`;
}
