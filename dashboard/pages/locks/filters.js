// The chips that narrow the list to locks in one state, each with how many there are.

import { html } from "../../view.js";
import { count } from "../../model/format.js";
import { locks, locksVersion } from "../../model/locks.js";
import { isNarrow } from "../../parts/width.js";
import { Icon } from "../../parts/icon.js";

const FILTERS = {
  "waited-for": { title: "Waited for", icon: "queued", has: ({ waiters }) => waiters > 0 },
  waiting: { title: "Group that waits", icon: "gap", has: isWaiting },
  reserved: { title: "Reserved", icon: "reserved", has: ({ reservation }) => Boolean(reservation) },
  resting: { title: "Resting", icon: "pause", has: ({ rests }) => Boolean(rests) },
  asked: { title: "Release requested", icon: "release-requested", has: ({ releaseBy }) => (releaseBy ?? null) !== null },
  shared: { title: "Shared", icon: "overview", has: ({ shared }) => Boolean(shared) },
};

/** Whether a group holds the lock, or shares it, while it waits for another lock. */
export function isWaiting({ waiting, leases }) {
  return Boolean(waiting) || [...(leases?.values() ?? [])].some((lease) => lease.waiting);
}

/** Whether a lock is one of those that the chip `show` stands for; without a chip every lock is. */
export const isShown = (lock, show) => !Object.hasOwn(FILTERS, show) || (!lock.ended && FILTERS[show].has(lock));

/** The chips; on a phone, where the table has no head, the most wanted sort too. */
export function Filters({ show, choose, sort, sortBy }) {
  locksVersion.value;
  const all = [...locks.values()].filter(({ ended }) => !ended);
  const byWaiters = sort === "-waiters";
  return html`<div class="kinds" role="group" aria-label="Show only">
    ${Object.entries(FILTERS).map(
      ([id, { title, icon, has }]) => html`<button type="button" class="chip" key=${id} aria-pressed=${show === id} onClick=${() => choose(show === id ? "" : id)}>
        <${Icon} name=${icon} />${title} <span class="many">${count(all.filter(has).length)}</span>
      </button>`,
    )}
    ${isNarrow.value && html`<button type="button" class="chip" aria-pressed=${byWaiters} onClick=${() => sortBy(byWaiters ? "name" : "-waiters")}><${Icon} name="down" />Most waiters first</button>`}
  </div>`;
}
