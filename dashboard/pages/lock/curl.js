// The same from a terminal, to be copied.

import { html } from "../../view.js";
import { lockPath, root } from "../../model/api.js";
import { may, session } from "../../model/session.js";
import { Copy } from "../../parts/copy.js";

/** A line for each thing that one may do with the lock. */
export function Curl({ name, lock }) {
  const key = session.value.authentication ? `-H "Authorization: Bearer $LATCHGATE_KEY" ` : "";
  const url = (verb) => `'${new URL(lockPath(name, verb), root).href}'`;
  const fence = lock.holder?.fencing_token;
  const body = JSON.stringify({ reason: "why", ...(fence && { fencing_token: fence }) });
  const lines = [
    ["inspect it", "view", `curl ${key}${url()}`],
    ["acquire it", "acquire", `curl -X POST ${key}${url()}`],
    ["hold it until Ctrl-C", "acquire", `curl -N -X POST ${key}${url("hold")}`],
    lock.holder && ["break it", "break", `curl ${key}--json '${body}' ${url("break")}`],
  ];
  const shown = lines.filter((line) => line && may(line[1], name));
  return html`<section class="panel curl" aria-labelledby="curl">
    <h2 id="curl">From a terminal</h2>
    <ul>
      ${shown.map(
        ([what, , line]) => html`<li key=${what}>
          <span class="what">${what}</span>
          <code tabindex="0" role="textbox" aria-readonly="true" aria-label="The line to ${what}">${line}</code>
          <${Copy} text=${line} what="the line to ${what}" />
        </li>`,
      )}
    </ul>
  </section>`;
}
