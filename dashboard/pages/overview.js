// How things stand: the figures, the last minutes, where it is crowded, and whether all is well.

import { html, useEffect } from "../view.js";
import { now, tick } from "../model/clock.js";
import { figures, figuresProblem, samples, SPAN } from "../model/figures.js";
import { count, duration, fine, NOTHING, rate } from "../model/format.js";
import { isLoaded, listing, load, locks, locksVersion } from "../model/locks.js";
import { href, lockHref } from "../model/route.js";
import { seesAll, seesFigures, seesSomething } from "../model/session.js";
import { isStale } from "../model/store.js";
import { Chart } from "../parts/chart.js";
import { Failed, Loading } from "../parts/notice.js";
import { SEEN, Sight } from "../parts/sight.js";
import { Foreign } from "../parts/text.js";
import { Crowded } from "./overview/crowded.js";
import { Gateways } from "./overview/gateways.js";
import { Health } from "./overview/health.js";

/** The page. */
export function Overview() {
  const failed = figuresProblem.value;
  // The locks may have been looked at by a prefix only.
  useEffect(() => {
    if (!isLoaded("")) load("");
  }, []);
  return html`<div class="page overview">
    <div class="title"><h1 tabindex="-1">Overview</h1><${Where} /></div>
    <${Tiles} />
    ${!seesSomething() &&
    html`<p class="remark"><span>Your key may not see any lock. One that it may acquire is found by its name, among the <a href=${href("locks")}>locks</a>.</span></p>`}
    ${seesSomething() && !seesAll() && html`<${Others} />`}
    ${!seesFigures() && html`<p class="remark"><span>Your key may not read the figures of the gateway: it takes <code>metrics</code>, or <code>view</code> on every lock.</span></p>`}
    ${seesFigures() && !figures.value && !failed && html`<${Loading} what="Asking for the figures…" />`}
    ${seesFigures() && !figures.value && failed && html`<${Failed} problem=${failed} />`}
    ${figures.value && html`<${Charts} />`}
    <div class="columns"><div class="main-column"><${Crowded} /><${Gateways} /></div><${Health} /></div>
  </div>`;
}

/** What is counted is not all there is; the figures of the gateway are. */
function Others() {
  const counted = seesFigures() ? ", which the figures of this gateway count too" : "";
  return html`<p class="remark"><${Sight} /> There may be others${counted}.</p>`;
}

function Where() {
  const stats = figures.value;
  if (!stats) return null;
  return html`<p class="count">
    ${stats.store} store, figures of gateway <span class="mono">${stats.instance.slice(0, 8)}</span>
  </p>`;
}

function Tiles() {
  locksVersion.value;
  tick.value;
  const stats = figures.value;
  const last = samples.at(-1);
  const ready = listing.value.state === "ready";
  const { waiting, longest } = sums();
  const more = listing.value.more || listing.value.partial ? "+" : "";
  const wait = stats?.contended.find((lock) => lock.longest_wait_ms === stats.longest_wait_ms);
  // Where there can be no other gateway, and all is seen, it need not be said.
  const here = stats && (stats.store !== "embedded" || !seesAll()) ? ", this gateway" : "";
  const seen = seesAll() ? "" : ` ${SEEN}`;
  return html`<ul class="tiles ${isStale() ? "stale" : ""}">
    ${seesSomething() &&
    html`<${Tile} title=${`Locks held${seen}`} to=${href("locks")} value=${ready ? count(locks.size) + more : NOTHING} />
      <${Tile} title=${`Waiters${seen}`} to=${href("locks", { sort: "-waiters" })} value=${ready ? count(waiting) + more : NOTHING} />`}
    ${!seesSomething() &&
    stats &&
    html`<${Tile} title="Held, this gateway" value=${count(stats.leases)} />
      <${Tile} title="Waiters, this gateway" value=${count(stats.waiters)} />
      <${Tile} title="Longest hold, this gateway" value=${stats.longest_hold_ms === null ? "none" : duration(stats.longest_hold_ms)} />`}
    ${stats && html`<${Tile} title=${`Longest wait${here}`} value=${stats.longest_wait_ms === null ? "none" : duration(stats.longest_wait_ms)} name=${wait?.name} />`}
    ${seesSomething() &&
    html`<${Tile} title=${`Longest hold${seen}`} value=${longest ? duration(now() - longest.acquiredAt) : "none"} name=${longest?.name} />`}
    ${stats &&
    html`<${Tile} title=${`Grants per second${here}`} value=${rate(last?.grants)} />
      <${Tile} title=${`Refusals per second${here}`} value=${rate(last?.refusals)} />`}
  </ul>`;
}

function Tile({ title, value, to, name }) {
  return html`<li class="tile panel">
    <span class="label">${to ? html`<a href=${to}>${title}</a>` : title}</span>
    <span class="value">${value}</span>
    ${name && html`<a class="of" href=${lockHref(name)}><${Foreign} value=${name} /></a>`}
  </li>`;
}

function sums() {
  let waiting = 0;
  let longest = null;
  for (const lock of locks.values()) {
    if (lock.ended) continue;
    waiting += lock.waiters ?? 0;
    if (lock.acquiredAt !== null && (!longest || lock.acquiredAt < longest.acquiredAt)) longest = lock;
  }
  return { waiting, longest };
}

function Charts() {
  // Every answer is a new point, and so is that there was none.
  figures.value;
  figuresProblem.value;
  const times = samples.map((sample) => sample.time);
  const line = (label, of, tone, dashed) => ({ label, tone, dashed, values: samples.map((sample) => sample[of]) });
  return html`<div class="charts">
    <${Chart}
      title="Grants and refusals per second"
      ...${{ times, format: rate, step: 0.5, span: SPAN }}
      series=${[line("Grants", "grants", "good"), line("Refusals", "refusals", "bad", true)]}
    />
    <${Chart}
      title="Locks held and waiters${seesAll() ? "" : ", this gateway"}"
      ...${{ times, format: count, step: 1, span: SPAN }}
      series=${[line("Held", "held", "accent"), line("Waiters", "waiters", "warn", true)]}
    />
    <${Chart}
      title="Left of the TTL at renewals"
      ...${{ times, format: fine, step: 1, span: SPAN }}
      series=${[line("Median", "margin", "accent"), line("Lowest 5%", "least", "bad", true)]}
    />
  </div>`;
}
