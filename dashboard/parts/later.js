// Parts of the page that are brought when they are first wanted: what is in `later/` is not joined into the script.

import { html, signal, useEffect } from "../view.js";
import { say } from "./said.js";

/**
 * The component `name` of a file in `later/`, which shows nothing until it is there. `bring()` brings it ahead of its first
 * use. If it cannot be brought its `close` is called, so that it can be opened again.
 */
export function later(file, name) {
  const part = signal(null);
  let asked = null;
  let failures = 0;
  const bring = () => {
    asked ??= load();
    return asked;
  };
  const load = async () => {
    const path = new URL(`later/${file}`, document.baseURI);
    // A browser does not load a module again whose address has failed once, so each further try has another address.
    if (failures) path.hash = failures;
    try {
      part.value = (await import(path))[name];
    } catch {
      failures += 1;
      asked = null;
      say("A part of the page could not be loaded. Try again.");
    }
  };
  function Later(props) {
    useEffect(() => void bring().then(() => part.value ?? props.close?.()), []);
    return part.value && html`<${part.value} ...${props} />`;
  }
  return Object.assign(Later, { bring });
}
