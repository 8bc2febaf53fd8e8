// Instead of the locks, for a key that may not see any: the way to one by its name.

import { html, useSignal } from "../../view.js";
import { isName, RULE } from "../../model/name.js";
import { go, lockHref } from "../../model/route.js";
import { session } from "../../model/session.js";
import { Empty } from "../../parts/notice.js";

/** Says so; who may acquire something can go to it. */
export function Unlisted() {
  const name = useSignal("");
  const wrong = useSignal(false);
  const acquires = session.value.permissions?.acquire.length > 0;
  const look = (event) => {
    event.preventDefault();
    wrong.value = !isName(name.value);
    if (!wrong.value) go(lockHref(name.value));
  };
  return html`<${Empty} title="Your key may not see any lock">
    <p>To see locks, a key needs the permission <code>view</code>.</p>
    ${acquires &&
    html`<form class="by-name" onSubmit=${look}>
      <label for="by-name">You may acquire one by its name</label>
      <input
        id="by-name"
        type="text"
        required
        maxlength="200"
        autocomplete="off"
        autocapitalize="off"
        spellcheck=${false}
        aria-describedby=${wrong.value ? "by-name-rule" : undefined}
        value=${name.value}
        onInput=${(event) => (name.value = event.target.value)}
      />
      <button type="submit" class="main">Go to the lock</button>
      ${wrong.value && html`<p id="by-name-rule" role="alert">${RULE}</p>`}
    </form>`}
  <//>`;
}
