// There is no such page.

import { html } from "../view.js";
import { href } from "../model/route.js";
import { Empty } from "../parts/notice.js";

/** Says so, and where to go instead. */
export function Missing() {
  return html`<div class="page">
    <h1 tabindex="-1" class="out-of-sight">Not found</h1>
    <${Empty} icon="search" title="There is no such page"><a href=${href()}>To the overview</a><//>
  </div>`;
}
