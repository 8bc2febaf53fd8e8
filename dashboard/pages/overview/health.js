// Whether all is well: what the gateway says of its store and of itself.

import { html } from "../../view.js";
import { figures, figuresProblem } from "../../model/figures.js";
import { count } from "../../model/format.js";
import { Icon } from "../../parts/icon.js";

const ICONS = { passing: "done", warning: "warning", outage: "failed", misconfigured: "failed", draining: "pause" };

/** "draining: passing" would be read as if it were. */
const NAMES = { draining: "in service" };

/** What each check found, and what should not have happened since the start. */
export function Health() {
  const stats = figures.value;
  if (!stats) return null;
  const { renewals, expired_while_held, store_errors, broken } = stats.totals;
  const stale = figuresProblem.value !== null;
  return html`<section class="panel health ${stale ? "stale" : ""}" aria-labelledby="health">
    <h2 id="health">
      Health
      <span class="verdict ${stats.status}">
        <${Icon} name=${stats.status === "ready" ? "done" : "failed"} />${stats.status === "ready" ? "ready" : "not ready"}
      </span>
    </h2>
    <ul class="checks">
      ${stats.checks.map(
        (check) => html`<li key=${check.name} class=${check.status}>
          <${Icon} name=${ICONS[check.status] ?? "warning"} />
          <span class="name">${NAMES[check.name] ?? check.name}</span>
          <span class="status">${check.status}</span>
          ${check.detail && html`<p>${check.detail}</p>`}
        </li>`,
      )}
    </ul>
    <dl class="since">
      <${Total} title="Leases lost at renewal" number=${renewals.lost} bad />
      <${Total} title="Expired while held" number=${expired_while_held} bad />
      <${Total} title="Store errors" number=${store_errors} bad />
      <${Total} title="Broken by people" number=${broken} />
      <${Total} title="Hold streams now" number=${stats.held_streams} />
      <${Total} title="Event streams now" number=${stats.event_streams} />
    </dl>
  </section>`;
}

function Total({ title, number, bad }) {
  return html`<div class=${bad && number > 0 ? "bad" : ""}><dt>${title}</dt><dd>${count(number)}</dd></div>`;
}
