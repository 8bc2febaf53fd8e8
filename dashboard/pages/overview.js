// How things stand: what needs attention, the figures, the last hour, where it is crowded, and whether all is well.

import { html, useEffect } from "../view.js";
import { lookAtAttention } from "../model/attention.js";
import { now, tick } from "../model/clock.js";
import { answered, countsAll, figures, figuresProblem, samplesHere, samplesOfAll, SPAN, totals } from "../model/figures.js";
import { count, duration, fine, NOTHING, rate } from "../model/format.js";
import { isLoaded, listing, load, locks, locksVersion } from "../model/locks.js";
import { href, lockHref } from "../model/route.js";
import { seesAll, seesFigures, seesSomething } from "../model/session.js";
import { isQuorum, isStale } from "../model/store.js";
import { Chart } from "../parts/chart.js";
import { Failed, Loading } from "../parts/notice.js";
import { SEEN, Sight } from "../parts/sight.js";
import { Foreign } from "../parts/text.js";
import { Attention } from "./overview/attention.js";
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
  tick.value;
  useEffect(() => void lookAtAttention());
  return html`<div class="page overview">
    <div class="title"><h1 tabindex="-1">Overview</h1><${Where} /></div>
    <${Tiles} />
    ${!seesSomething() &&
    html`<p class="remark"><span>Your key may not see any lock. One that it may acquire is found by its name, among the <a href=${href("locks")}>locks</a>.</span></p>`}
    ${seesSomething() && !seesAll() && html`<${Others} />`}
    ${!seesFigures() && html`<p class="remark"><span>Your key may not read the figures of the gateway: it takes <code>metrics</code>, or <code>view</code> on every lock.</span></p>`}
    ${seesFigures() && !figures.value && !failed && html`<${Loading} what="Asking for the figures…" />`}
    ${seesFigures() && !figures.value && failed && html`<${Failed} problem=${failed} />`}
    <${Attention} />
    ${figures.value && (isAlone() ? html`<div class="charts"><${CountsOfAll} /><${OfGateway} /></div>` : html`<${Apart} />`)}
    <div class="columns"><div class="main-column"><${Crowded} /><${Gateways} /></div><${Health} /></div>
  </div>`;
}

/** Whether the figures of the gateway are those of all: there can be no other, and the key sees all that it counts. */
function isAlone() {
  return figures.value?.store === "embedded" && seesAll();
}

/** What is counted is not all there is; the figures of the gateway are. */
function Others() {
  const counted = seesFigures() ? ", which the figures of the gateway count too" : "";
  return html`<p class="remark"><${Sight} /> There may be others${counted}.</p>`;
}

function Where() {
  const stats = figures.value;
  if (!stats) return null;
  return html`<p class="count">
    ${stats.store} store${isAlone() && html`, gateway <span class="mono">${stats.instance.slice(0, 8)}</span>`}
  </p>`;
}

/** What is true of all gateways; of one as well where there can be no other. */
function Tiles() {
  locksVersion.value;
  tick.value;
  const ready = listing.value.state === "ready";
  const longest = eldest();
  const { held, waiters } = totals();
  const more = listing.value.more || listing.value.partial ? "+" : "";
  const seen = seesAll() ? "" : ` ${SEEN}`;
  if (!seesSomething()) return null;
  return html`<ul class="tiles ${isStale() ? "stale" : ""}">
    <${Tile} title=${`Locks held${seen}`} to=${href("locks")} value=${ready ? count(held) + more : NOTHING} />
    ${!isQuorum.value &&
    html`<${Tile} title=${`Waiters${seen}`} to=${href("locks", { sort: "-waiters" })} value=${ready ? count(waiters) + more : NOTHING} />`}
    <${Tile} title=${`Longest hold${seen}`} value=${longest ? duration(now() - longest.acquiredAt) : "none"} name=${longest?.name} />
    ${isAlone() && html`<${TilesOfGateway} />`}
  </ul>`;
}

/** What only the gateway knows. */
function TilesOfGateway() {
  answered.value;
  const stats = figures.value;
  const last = samplesHere().at(-1);
  const wait = stats.contended.find((lock) => lock.longest_wait_ms === stats.longest_wait_ms);
  const span = (ms) => (ms === null ? "none" : duration(ms));
  return html`
    <${Tile} title="Longest wait" value=${span(stats.longest_wait_ms)} name=${wait?.name} />
    <${Tile} title="Grants per second" value=${rate(last?.grants)} />
    <${Tile} title="Refusals per second" value=${rate(last?.refusals)} />`;
}

/** Charts of all gateways, and behind them what is of one, under its name. */
function Apart() {
  const stats = figures.value;
  const all = countsAll();
  return html`${all && html`<div class="charts"><${CountsOfAll} /></div>`}
    <section class="of-gateway ${isStale() ? "stale" : ""}" aria-labelledby="of-gateway">
      <h2 id="of-gateway">Through gateway <span class="mono" title=${stats.instance}>${stats.instance.slice(0, 8)}</span></h2>
      <ul class="tiles">
        <${Tile} title="Leases" value=${count(stats.leases)} />
        <${Tile} title="Waiters" value=${count(stats.waiters)} />
        <${TilesOfGateway} />
      </ul>
      <div class="charts"><${OfGateway} />${!all && html`<${CountsOfGateway} />`}</div>
    </section>`;
}

function Tile({ title, value, to, name }) {
  return html`<li class="tile panel">
    <span class="label">${to ? html`<a href=${to}>${title}</a>` : title}</span>
    <span class="value">${value}</span>
    ${name && html`<a class="of" href=${lockHref(name)}><${Foreign} value=${name} /></a>`}
  </li>`;
}

function eldest() {
  let longest = null;
  for (const lock of locks.values()) {
    if (lock.ended) continue;
    if (lock.acquiredAt !== null && (!longest || lock.acquiredAt < longest.acquiredAt)) longest = lock;
  }
  return longest;
}

/** What a chart takes: the values of each sample. */
function plotted(samples) {
  // Every answer is a new point, and so is that there was none.
  answered.value;
  figuresProblem.value;
  return {
    times: samples.map((sample) => sample.time),
    line: (label, of, tone, dashed) => ({ label, tone, dashed, values: samples.map((sample) => sample[of]) }),
  };
}

function CountsOfAll() {
  const { times, line } = plotted(samplesOfAll());
  const held = line("Held", "held", "accent");
  const series = isQuorum.value ? [held] : [held, line("Waiters", "waiters", "warn", true)];
  return html`<${Chart}
    title=${isQuorum.value ? "Locks held" : "Locks held and waiters"}
    ...${{ times, format: count, step: 1, span: SPAN, series }}
  />`;
}

function CountsOfGateway() {
  const { times, line } = plotted(samplesHere());
  return html`<${Chart}
    title="Leases and waiters"
    ...${{ times, format: count, step: 1, span: SPAN }}
    series=${[line("Leases", "leases", "accent"), line("Waiters", "waiting", "warn", true)]}
  />`;
}

function OfGateway() {
  const { times, line } = plotted(samplesHere());
  return html`<${Chart}
      title="Grants and refusals per second"
      ...${{ times, format: rate, step: 0.5, span: SPAN }}
      series=${[line("Grants", "grants", "good"), line("Refusals", "refusals", "bad", true)]}
    />
    <${Chart}
      title="Left of the TTL at renewals"
      ...${{ times, format: fine, step: 1, span: SPAN }}
      series=${[line("Median", "margin", "accent"), line("Lowest 5%", "least", "bad", true)]}
    />`;
}
