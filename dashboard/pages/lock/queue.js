// Who waits for the lock, in the order in which they are served.

import { html } from "../../view.js";
import { now, tick } from "../../model/clock.js";
import { count, duration } from "../../model/format.js";
import { estimate } from "../../model/usual.js";
import { Foreign } from "../../parts/text.js";
import { Value } from "../../parts/value.js";

/** How a waiter wants to hold the lock, if not alone. */
function Wants({ waiter: { mode, limit } }) {
  if (mode !== "shared") return null;
  return html`${" "}<span class="none">${limit === null ? "shared" : `shared by at most ${limit}`}</span>`;
}

/** An estimate in as few digits as it is worth. */
function about(ms) {
  if (ms < 10_000) return "a few seconds";
  if (ms < 90_000) return `about ${Math.round(ms / 10_000) * 10} s`;
  return ms < 90 * 60_000 ? `about ${Math.round(ms / 60_000)} min` : `about ${(ms / 3_600_000).toFixed(1)} h`;
}

/** What a waiter says of itself. */
function Job({ metadata = {} }) {
  const entries = Object.entries(metadata);
  return entries.length > 0 && html`<p class="fact">${entries.map(([key, value]) => html`<span key=${key}><${Foreign} value=${key} />: <${Value} value=${value} /></span>`)}</p>`;
}

/** The queue; a long one is cut where the gateway cuts it. */
export function Queue({ lock, usual }) {
  tick.value;
  const { waiters, waiter_count: all, sentAt } = lock;
  const since = now() - sentAt;
  const turns = waiters.map(({ position }) => estimate(lock, position, usual, now()));
  const next = estimate(lock, all + 1, usual, now());
  return html`<section class="panel queue" aria-labelledby="queue">
    <h2 id="queue">Queue <span class="number">${count(all)}</span></h2>
    ${all === 0
      ? html`<p class="nothing">Nobody waits.</p>`
      : html`<table>
          <thead><tr><th scope="col" class="place">Place</th><th scope="col">Owner</th><th scope="col" class="number">Has waited</th></tr></thead>
          <tbody>
            ${waiters.map(
              (waiter, at) => html`<tr key=${waiter.position}>
                <td class="place">${waiter.position}${waiter.position === 1 && html` <span class="next">next</span>`}</td>
                <td><${Foreign} value=${waiter.owner} none="not said" /><${Wants} waiter=${waiter} /><${Job} metadata=${waiter.metadata} /></td>
                <td class="number">${duration(waiter.waited_ms + since)}${turns[at] && html`<p class="fact">estimate: ${about(turns[at].ms)}</p>`}</td>
              </tr>`,
            )}
          </tbody>
        </table>`}
    ${all > waiters.length && html`<p class="note">and ${count(all - waiters.length)} more behind them</p>`}
    ${next && lock.holders.length > 0 && html`<p class="note">Estimate: a new waiter gets the lock in ${about(next.ms)}: ${count(next.before)} before it, median hold ${duration(usual.hold.median)}.</p>`}
  </section>`;
}
