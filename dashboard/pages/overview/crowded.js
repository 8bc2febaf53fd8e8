// Where it is crowded: the locks that most wait for.

import { html } from "../../view.js";
import { contended } from "../../model/attention.js";
import { count, NOTHING } from "../../model/format.js";
import { listing, locksVersion } from "../../model/locks.js";
import { lockHref } from "../../model/route.js";
import { seesAll, seesSomething } from "../../model/session.js";
import { isQuorum } from "../../model/store.js";
import { Holders } from "../../parts/holders.js";
import { SEEN } from "../../parts/sight.js";
import { Foreign } from "../../parts/text.js";

const MOST_ROWS = 8;

/** The most contended locks. */
export function Crowded() {
  locksVersion.value;
  if (!seesSomething()) return null;
  const crowded = contended();
  const nobody = seesAll() ? "Nobody waits for a lock." : `Nobody waits for a lock ${SEEN}.`;
  return html`<section class="panel crowded" aria-labelledby="crowded">
    <h2 id="crowded">Most contended</h2>
    ${crowded.length === 0
      ? html`<p class="nothing">${listing.value.state === "ready" ? nobody : NOTHING}</p>`
      : html`<table>
          <thead>
            <tr><th scope="col">Lock</th><th scope="col">Holder</th><th scope="col" class="number">Waiters</th></tr>
          </thead>
          <tbody>
            ${crowded.slice(0, MOST_ROWS).map((lock) => html`<${Row} key=${lock.name} ...${{ lock, most: crowded[0].waiters }} />`)}
          </tbody>
        </table>`}
    ${isQuorum.value && html`<p class="note">On a quorum each gateway knows only those who wait through it: these wait at the one that has answered.</p>`}
  </section>`;
}

function Row({ lock, most }) {
  return html`<tr>
    <td class="name"><a href=${lockHref(lock.name)}><${Foreign} value=${lock.name} /></a></td>
    <td class="owner"><${Holders} lock=${lock} foreign="foreign client" /></td>
    <td class="number">
      <span class="share" aria-hidden="true"><i style=${{ transform: `scaleX(${lock.waiters / most})` }} /></span>${count(lock.waiters)}
    </td>
  </tr>`;
}
