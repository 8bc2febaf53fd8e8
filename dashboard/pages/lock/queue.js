// Who waits for the lock, in the order in which they are served.

import { html } from "../../view.js";
import { now, tick } from "../../model/clock.js";
import { count, duration } from "../../model/format.js";
import { Foreign } from "../../parts/text.js";

/** How a waiter wants to hold the lock, if not alone. */
function Wants({ waiter: { mode, limit } }) {
  if (mode !== "shared") return null;
  return html`${" "}<span class="none">${limit === null ? "shared" : `shared by at most ${limit}`}</span>`;
}

/** The queue; a long one is cut where the gateway cuts it. */
export function Queue({ lock }) {
  tick.value;
  const { waiters, waiter_count: all, sentAt } = lock;
  const since = now() - sentAt;
  return html`<section class="panel queue" aria-labelledby="queue">
    <h2 id="queue">Queue <span class="number">${count(all)}</span></h2>
    ${all === 0
      ? html`<p class="nothing">Nobody waits.</p>`
      : html`<table>
          <thead><tr><th scope="col" class="place">Place</th><th scope="col">Owner</th><th scope="col" class="number">Has waited</th></tr></thead>
          <tbody>
            ${waiters.map(
              (waiter) => html`<tr key=${waiter.position}>
                <td class="place">${waiter.position}${waiter.position === 1 && html` <span class="next">next</span>`}</td>
                <td><${Foreign} value=${waiter.owner} none="not said" /><${Wants} waiter=${waiter} /></td>
                <td class="number">${duration(waiter.waited_ms + since)}</td>
              </tr>`,
            )}
          </tbody>
        </table>`}
    ${all > waiters.length && html`<p class="note">and ${count(all - waiters.length)} more behind them</p>`}
  </section>`;
}
