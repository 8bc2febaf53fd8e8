// A field that narrows what is shown, as it is typed in.

import { html, useEffect, useRef, useSignal } from "../view.js";
import { Icon } from "./icon.js";
import { isNarrow } from "./width.js";

/** `change(text)` hears every keystroke; `value` is what the address says. */
export function Field({ label, short, icon, value, hint, change }) {
  const field = useRef(null);
  // What is being typed is never overwritten by the address.
  const typed = useSignal(value);
  useEffect(() => {
    if (document.activeElement !== field.current) typed.value = value;
  }, [value]);
  return html`<label class="search">
    <span class="out-of-sight">${label}</span>
    ${icon && html`<${Icon} name=${icon} />`}
    <input
      type="search"
      ref=${field}
      placeholder=${isNarrow.value ? short : label}
      value=${typed.value}
      maxlength="200"
      autocomplete="off"
      autocapitalize="off"
      spellcheck=${false}
      onInput=${(event) => {
        typed.value = event.target.value;
        change(event.target.value);
      }}
    />
    ${hint && html`<kbd aria-hidden="true">${hint}</kbd>`}
  </label>`;
}
