// What is shown instead of something: that there is nothing, that it is being loaded, or what went wrong.

import { html } from "../view.js";
import { Icon } from "./icon.js";
import { Foreign } from "./text.js";

/** Something is being loaded. */
export function Loading({ what }) {
  return html`<div class="notice loading" role="status"><span class="spinner" aria-hidden="true"></span>${what}</div>`;
}

/** There is nothing, and that is no fault. */
export function Empty({ icon = "locks", title, children }) {
  return html`<div class="notice empty">
    <span class="mark"><${Icon} name=${icon} /></span>
    <p class="title">${title}</p>
    <div class="more">${children}</div>
  </div>`;
}

/** A problem as the gateway told it. */
export function Failed({ problem, again }) {
  const id = problem.extra?.request_id;
  return html`<div class="notice failed" role="alert">
    <span class="mark"><${Icon} name="failed" /></span>
    <p class="title"><${Foreign} value=${problem.title} whole /></p>
    <div class="more">
      <p><${Foreign} value=${problem.detail} none="" whole /></p>
      ${id && html`<p class="small">Request <code><${Foreign} value=${id} whole /></code></p>`}
      ${again && html`<button type="button" onClick=${again}>Try again</button>`}
    </div>
  </div>`;
}

/** A problem in a line or two, beside what it concerns. */
export function Trouble({ problem }) {
  if (!problem) return null;
  const fields = problem.extra?.errors ?? [];
  return html`<div class="trouble" role="alert">
    <${Icon} name="failed" />
    <div>
      <strong><${Foreign} value=${problem.title} whole />.</strong> <${Foreign} value=${problem.detail} none="" whole />
      ${fields.length > 0 &&
      html`<ul>
        ${fields.map((field) => html`<li><code><${Foreign} value=${field.field} whole /></code> <${Foreign} value=${field.reason} whole /></li>`)}
      </ul>`}
    </div>
  </div>`;
}
