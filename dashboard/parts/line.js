// A line of a form: its label, its field, and below the field what is to be said of it.

import { html } from "../view.js";
import { Icon } from "./icon.js";

/** `value` is a signal, `field` a reference to the input. `wrong`: the error of the field; `hint`: a note on its value. */
export function Line({ id, label, value, field, hint, wrong, ...input }) {
  const notes = [wrong && `${id}-wrong`, hint && `${id}-hint`].filter(Boolean).join(" ");
  return html`<label for=${id}>${label}</label>
    <input
      id=${id}
      ref=${field}
      type="text"
      autocomplete="off"
      value=${value.value}
      onInput=${(event) => (value.value = event.target.value)}
      aria-invalid=${wrong ? "true" : undefined}
      aria-describedby=${notes || undefined}
      ...${input}
    />
    ${hint && html`<p class="beside" id="${id}-hint">${hint}</p>`}
    ${wrong && html`<p class="beside wrong" id="${id}-wrong" role="alert"><${Icon} name="failed" />${wrong}</p>`}`;
}
