// A dialog of the browser's own, which keeps the focus in and gives it back.

import { html, useLayoutEffect, useRef } from "../view.js";
import { Icon } from "./icon.js";

/**
 * Is open as long as it is there; `close` is called by Escape and by the cross, and if a browser closes the dialog itself, as
 * at a second Escape in a row.
 */
export function Dialog({ title, close, children, wide }) {
  const element = useRef(null);
  // Before the next key: an Enter after the click that opened the dialog belongs to the dialog.
  useLayoutEffect(() => {
    const dialog = element.current;
    const before = document.activeElement;
    dialog.showModal();
    return () => {
      dialog.close();
      if (before?.isConnected) before.focus();
    };
  }, []);
  return html`<dialog
    ref=${element}
    class=${wide ? "wide" : ""}
    aria-labelledby="dialog-title"
    onCancel=${(event) => {
      event.preventDefault();
      close();
    }}
    onClose=${() => close()}
    onClick=${(event) => event.target === element.current && close()}
  >
    <div class="inside">
      <header>
        <h2 id="dialog-title">${title}</h2>
        <button type="button" class="bare" aria-label="Close" onClick=${close}><${Icon} name="close" /></button>
      </header>
      ${children}
    </div>
  </dialog>`;
}
