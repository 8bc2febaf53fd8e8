// The line for a terminal that does the same, ready to copy.

import { html } from "../../view.js";
import { may } from "../../model/session.js";
import { curl } from "../../model/terminal.js";
import { Copy } from "../../parts/copy.js";
import { GRACE } from "./break.js";

/** A line for each thing that one may do with the lock. */
export function Curl({ name, lock }) {
  const { fencing_token: fence, foreign_mark: mark } = lock.holder ?? {};
  const one = { ...(fence && { fencing_token: fence }), ...(mark && { foreign_mark: mark }) };
  // A client that uses no gateway cannot be asked.
  const first = fence && { grace_ms: GRACE };
  const body = JSON.stringify({ reason: "why", ...(lock.holder_count > 1 ? { all: true } : one), ...first });
  const breaks = `${first ? "ask first, then " : ""}break ${lock.holder_count > 1 ? "all" : "it"}`;
  const lines = [
    ["inspect it", "view", curl([], name)],
    ["acquire it", "acquire", curl(["-X POST"], name)],
    ["hold it until Ctrl-C", "acquire", curl(["-N -X POST"], name, "hold")],
    fence && ["check its fencing token", "check", curl([`-i -H "Fencing-Token: ${fence}"`], name, "check")],
    lock.holder && [breaks, "break", curl([`--json '${body}'`], name, "break")],
  ];
  const shown = lines.filter((line) => line && may(line[1], name));
  return html`<section class="panel curl" aria-labelledby="curl">
    <h2 id="curl">From a terminal</h2>
    <ul>
      ${shown.map(
        ([what, , line]) => html`<li key=${what}>
          <span class="what">${what}</span>
          <code>${line}</code>
          <${Copy} text=${line} what="the line to ${what}" />
        </li>`,
      )}
    </ul>
  </section>`;
}
