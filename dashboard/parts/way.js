// How leases are broken: two cards, of which one is chosen. The holders are asked first, or not at all.

import { html } from "../view.js";
import { duration } from "../model/format.js";

/** How much time a holder may be given, in milliseconds. */
const GRACES = [10_000, 30_000, 60_000, 300_000, 1_800_000];
/** A holder that hears of it can still end its work: most renew within half a minute. */
export const GRACE = 30_000;

const ASKED = "The holder gets the request with its next renewal, and can end its work. A lease that is not released in time is broken.";
const TOLD =
  "The lease ends at once. A break does not stop the holder: it learns of the break with its next renewal and works on until then, so only a resource that checks the fencing token is safe.";

/** `grace` is a signal: the time to release the lock in milliseconds, 0 to break at once. */
export function Way({ grace }) {
  const asks = grace.value > 0;
  const set = (ms) => () => (grace.value = ms);
  return html`<fieldset class="ways">
    <legend class="out-of-sight">How</legend>
    <div class="way" data-chosen=${asks ? "" : undefined}>
      <label class="check"><input type="radio" name="way" checked=${asks} onChange=${set(GRACE)} />Ask first</label>
      <p>${ASKED}</p>
      <select aria-label="Request a release, and break the lock after" value=${String(grace.value || GRACE)} disabled=${!asks} onChange=${(event) => set(Number(event.target.value))()}>
        ${GRACES.map((ms) => html`<option key=${ms} value=${String(ms)}>Break it after ${duration(ms)}</option>`)}
      </select>
    </div>
    <div class="way" data-chosen=${asks ? undefined : ""}>
      <label class="check"><input type="radio" name="way" checked=${!asks} onChange=${set(0)} />Break now</label>
      <p>${TOLD}</p>
    </div>
  </fieldset>`;
}
