// The rests of the lock: places of leases that were released before their minimum hold was over.

import { html } from "../../view.js";
import { TimeLeft } from "../../parts/times.js";

/** Each with the time until it is over. `wake` opens the dialog that ends one early. */
export function Rests({ rests, wake }) {
  return html`<ol class="rests">
    ${rests.map(
      (rest) => html`<li key=${rest.fence}>
        <span class="slot">${rest.slot === null ? "the lock" : `slot ${rest.slot}`} rests</span>
        ${wake && html`<button type="button" aria-label=${`End the rest ${rest.fence}`} onClick=${() => wake(rest.fence)}>End the rest…</button>`}
        <span class="out-of-sight">available in</span>
        <${TimeLeft} lock=${{ ...rest, rests: true, ended: null }} />
        <p class="fact">fencing token <span class="mono">${rest.fence}</span></p>
      </li>`,
    )}
  </ol>`;
}
