// Copies a text, and says so.

import { html, useEffect, useRef, useSignal } from "../view.js";
import { say } from "./said.js";
import { Icon } from "./icon.js";

/** A button that copies `text`; `what` says what that is. */
export function Copy({ text, what, children }) {
  const done = useSignal(false);
  const timer = useRef(null);
  useEffect(() => () => clearTimeout(timer.current), []);
  const copy = async (event) => {
    event.preventDefault();
    if (!(await toClipboard(text))) return say(`The browser did not let ${what} be copied.`);
    say(`Copied ${what}.`);
    done.value = true;
    clearTimeout(timer.current);
    timer.current = setTimeout(() => (done.value = false), 1_500);
  };
  const icon = html`<${Icon} name=${done.value ? "done" : "copy"} />`;
  if (children) return html`<button type="button" class="quiet" onClick=${copy}>${icon}${children}</button>`;
  return html`<button type="button" class="bare" aria-label="Copy ${what}" title="Copy ${what}" onClick=${copy}>
    ${icon}
  </button>`;
}

async function toClipboard(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // There is no clipboard where the page did not come over TLS or from this machine.
    const field = document.createElement("textarea");
    field.value = text;
    field.className = "out-of-sight";
    (document.querySelector("dialog[open]") ?? document.body).append(field);
    const before = document.activeElement;
    field.select();
    const copied = document.execCommand("copy");
    field.remove();
    before?.focus?.();
    return copied;
  }
}
