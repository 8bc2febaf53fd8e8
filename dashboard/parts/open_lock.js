// The dialog that opens the page of a lock by its name, whether it is held or not.

import { html, useLayoutEffect, useRef, useSignal } from "../view.js";
import { locks } from "../model/locks.js";
import { isName, RULE } from "../model/name.js";
import { go, lockHref } from "../model/route.js";
import { Dialog } from "./dialog.js";
import { Line } from "./line.js";

/** So many names are proposed. */
const MOST_NAMES = 50;

/** The dialog. */
export function OpenLock({ close }) {
  const name = useSignal("");
  const wrong = useSignal(null);
  const field = useRef(null);
  useLayoutEffect(() => field.current.focus(), []);
  const open = (event) => {
    event.preventDefault();
    const wanted = name.value.trim();
    if (!isName(wanted)) return void (wrong.value = RULE);
    close();
    go(lockHref(wanted));
  };
  const proposed = [];
  for (const known of locks.keys()) if (known.includes(name.value) && proposed.push(known) === MOST_NAMES) break;
  return html`<${Dialog} title="Open a lock" close=${close}>
    <form onSubmit=${open} noValidate>
      <${Line} id="open-name" label="Name" list="open-names" maxlength="200" spellcheck=${false} autocapitalize="off" placeholder="deploy:prod" value=${name} field=${field} wrong=${wrong.value} />
      <datalist id="open-names">${proposed.map((known) => html`<option value=${known} key=${known} />`)}</datalist>
      <footer>
        <button type="button" class="quiet" onClick=${close}>Cancel</button>
        <button type="submit" class="main">Open</button>
      </footer>
    </form>
  <//>`;
}
