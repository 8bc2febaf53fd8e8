// The gateways that have answered this page: which version, for how long, and whether all is well with each.

import { html } from "../../view.js";
import { answered, figures, gateways } from "../../model/figures.js";
import { count, duration } from "../../model/format.js";
import { Icon } from "../../parts/icon.js";

/** A line for each. Nobody knows of all of them: each is a program of its own, and the store keeps no list. */
export function Gateways() {
  answered.value;
  const stats = figures.value;
  if (!stats) return null;
  const known = gateways();
  return html`<section class="panel gateways" aria-labelledby="gateways">
    <h2 id="gateways">${known.length === 1 ? "Gateway" : "Gateways"}</h2>
    <table>
      <thead>
        <tr>
          <th scope="col">Instance</th>
          <th scope="col">Version</th>
          <th scope="col" class="number">Up</th>
          <th scope="col" class="number less">Leases</th>
          <th scope="col" class="number less">Waiters</th>
          <th scope="col">Checks</th>
        </tr>
      </thead>
      <tbody>
        ${known.map(({ stats, time }) => html`<${Row} key=${stats.instance} ...${{ stats, time }} />`)}
      </tbody>
    </table>
    ${stats.store !== "embedded" &&
    html`<p class="note">Those that have answered this page within five minutes. Behind a load balancer there may be others on the same store.</p>`}
  </section>`;
}

function Row({ stats, time }) {
  const { instance, version, uptime_ms: uptime, leases, waiters, status, checks } = stats;
  const bad = checks.filter((check) => check.status !== "passing").map((check) => `${check.name}: ${check.status}`);
  const well = status === "ready" && bad.length === 0;
  const answered = duration(Date.now() - time);
  return html`<tr>
    <td class="mono" title="${instance}, answered ${answered} ago">${instance.slice(0, 8)}</td>
    <td>${version}</td>
    <td class="number">${duration(uptime)}</td>
    <td class="number less">${count(leases)}</td>
    <td class="number less">${count(waiters)}</td>
    <td class=${well ? "well" : "ill"}>
      <span><${Icon} name=${well ? "done" : "warning"} />${well ? "all passing" : bad.join(", ") || "not ready"}</span>
    </td>
  </tr>`;
}
