// Whether all is well: what the gateway says of its store and of itself.

import { html } from "../../view.js";
import { now, tick } from "../../model/clock.js";
import { figures, figuresProblem } from "../../model/figures.js";
import { count, duration } from "../../model/format.js";
import { store } from "../../model/store.js";
import { Icon } from "../../parts/icon.js";

const ICONS = { passing: "done", warning: "warning", outage: "failed", misconfigured: "failed", draining: "pause" };

/** "draining: passing" would be read as if it were. */
const NAMES = { draining: "in service" };

/** What each check found, and what should not have happened since the start. */
export function Health() {
  const stats = figures.value;
  if (!stats) return null;
  const { renewals, expired_while_held, store_errors, broken, stale_writes_refused } = stats.totals;
  const stale = figuresProblem.value !== null;
  return html`<section class="panel health ${stale ? "stale" : ""}" aria-labelledby="health">
    <h2 id="health">
      Health
      <${Verdict} stats=${stats} />
      ${stats.store !== "embedded" && html`<span class="aside mono" title="Gateway ${stats.instance}">${stats.instance.slice(0, 8)}</span>`}
    </h2>
    <ul class="checks">
      ${stats.checks.map(
        (check) => html`<li key=${check.name} class=${check.status}>
          <${Icon} name=${ICONS[check.status] ?? "warning"} />
          <span class="name">${NAMES[check.name] ?? check.name}</span>
          <span class="status">${check.status}</span>
          ${check.refuses_for_ms !== undefined && html`<p><${Refusal} /></p>`}
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
      <${Total} title="Writes refused that a lock alone would have let through" number=${stale_writes_refused} wide bad />
    </dl>
  </section>`;
}

/** A gateway that is ready stays in service while its store does not answer: that is not all well. */
function Verdict({ stats: { status, checks } }) {
  const has = (wanted) => checks.some((check) => check.status === wanted);
  const [tone, icon, words] =
    status !== "ready" ? ["not-ready", "failed", "not ready"]
    : has("outage") ? ["outage", "failed", "in service, with an outage"]
    : has("warning") ? ["warning", "warning", "ready, with a warning"]
    : ["ready", "done", "ready"];
  return html`<span class="verdict ${tone}"><${Icon} name=${icon} />${words}</span>`;
}

/** For how long a quorum refuses to grant locks. */
function Refusal() {
  tick.value;
  const { state, until } = store.value;
  return state === "refusing" && until !== null ? `refuses grants for another ${duration(Math.max(1_000, until - now()))}` : "refuses grants";
}

function Total({ title, number, bad, wide }) {
  return html`<div class="${bad && number > 0 ? "bad" : ""} ${wide ? "wide" : ""}"><dt>${title}</dt><dd>${count(number)}</dd></div>`;
}
