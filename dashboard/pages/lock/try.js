// Acquires, waits, renews and releases from the page, to see how the API answers.

import { html, useSignal } from "../../view.js";
import { now, tick } from "../../model/clock.js";
import { count, duration, fine } from "../../model/format.js";
import { acquire, keep, leaseOf, release, renew } from "../../model/leases.js";
import { LONGEST_OWNER } from "../../model/name.js";
import { session } from "../../model/session.js";
import { Asked } from "../../parts/asked.js";
import { Copy } from "../../parts/copy.js";
import { Icon } from "../../parts/icon.js";
import { Trouble } from "../../parts/notice.js";
import { TimeLeft } from "../../parts/times.js";

/** The panel, folded until somebody wants it, or from the beginning `open`. What it holds stays held on other pages. */
export function Try({ name, open = false }) {
  const mine = leaseOf(name).value;
  const { state } = mine;
  const shown = useSignal(open || state !== "idle");
  return html`<section class="panel try" aria-labelledby="try"><details open=${shown.value} onToggle=${(event) => (shown.value = event.target.open)}>
    <summary><h2 id="try">Try it</h2></summary>
    ${state === "over" &&
    html`<p class="remark"><${Icon} name="lost" /> The lease is over. ${mine.why}</p>`}
    ${(state === "idle" || state === "over") && html`<${Ask} name=${name} />`}
    ${state === "waiting" && html`<${Waiting} mine=${mine} />`}
    ${(state === "held" || state === "busy") && html`<${Held} ...${{ name, mine }} />`}
    <${Trouble} problem=${mine.problem} />
    ${mine.said && html`<${Answer} said=${mine.said} />`}
  </details></section>`;
}

function Ask({ name }) {
  const longest = session.value.max_ttl_ms;
  const given = useSignal({ ttl: Math.min(30, (longest ?? Infinity) / 1000), wait: 0, mode: "", limit: "", owner: "", metadata: "" });
  const wrong = useSignal(null);
  const set = (field) => (event) => (given.value = { ...given.value, [field]: event.target.value });
  const send = (event) => {
    event.preventDefault();
    const { ttl, wait, mode, limit, owner, metadata } = given.value;
    const held = mode && { mode, ...(mode === "shared" && limit !== "" && { limit: Number(limit) }) };
    const facts = pairs(metadata);
    wrong.value = facts === null ? "Each line of the metadata is name=value." : null;
    if (facts === null) return;
    acquire(name, { ttl: ttl * 1000, wait: wait * 1000, ...held, ...(owner && { owner }), ...(metadata.trim() && { metadata: facts }) });
  };
  return html`<form onSubmit=${send} class="ask">
    <label>TTL <span class="unit">seconds</span>
      <input type="number" min="0.1" step="any" max=${longest === null ? 86400 : longest / 1000} required value=${given.value.ttl} onInput=${set("ttl")} />
    </label>
    <label>Wait <span class="unit">seconds</span>
      <input type="number" min="0" max="55" step="any" required value=${given.value.wait} onInput=${set("wait")} />
    </label>
    <label>Mode
      <select value=${given.value.mode} onChange=${set("mode")}>
        <option value="">as declared, or exclusive</option>
        <option value="exclusive">exclusive</option>
        <option value="shared">shared</option>
      </select>
    </label>
    <label>Limit <span class="unit">holders</span>
      <input type="number" min="1" max="9999" placeholder="none" disabled=${given.value.mode !== "shared"} value=${given.value.limit} onInput=${set("limit")} />
    </label>
    <label class="wide">Owner
      <input type="text" maxlength=${LONGEST_OWNER} autocomplete="off" placeholder="your name, for people to read" value=${given.value.owner} onInput=${set("owner")} />
    </label>
    <label class="wide">Metadata
      <textarea rows="2" spellcheck=${false} placeholder="name=value, one on each line" value=${given.value.metadata} onInput=${set("metadata")} />
    </label>
    ${wrong.value && html`<p class="trouble wide" role="alert"><${Icon} name="failed" />${wrong.value}</p>`}
    <button type="submit" class="main wide">Acquire</button>
  </form>`;
}

function Waiting({ mine }) {
  tick.value;
  const waits = mine.waitsUntil > mine.since;
  return html`<div class="waiting">
    <span class="out-of-sight" role="status">${waits ? "Waiting for the lock" : "Asking"}</span>
    <p><span class="spinner" aria-hidden="true"></span>
      ${waits ? `Waiting for ${duration(now() - mine.since)} of ${duration(mine.waitsUntil - mine.since)}` : "Asking…"}</p>
    <button type="button" onClick=${mine.giveUp}>Give up</button>
  </div>`;
}

function Held({ name, mine }) {
  tick.value;
  const { lease, waitedMs, requested, state, releasing } = mine;
  const lock = { ttl: lease.ttlMs, expiresAt: now() + lease.expiresInMs, ended: null };
  return html`<div class="mine">
    <dl class="facts">
      <div class="wide"><dt>Time left</dt><dd><${TimeLeft} lock=${lock} /></dd></div>
      <div class="wide"><dt>Token</dt><dd class="mono">secret <${Copy} text=${lease.token} what="the token" /></dd></div>
      <div class="wide"><dt>Fencing token</dt><dd class="mono">${lease.fencingToken}</dd></div>
      ${lease.slot !== undefined && html`<div class="wide"><dt>Slot</dt><dd>${lease.slot}</dd></div>`}
      ${waitedMs > 0 && html`<div class="wide"><dt>Waited</dt><dd>${fine(waitedMs)}</dd></div>`}
    </dl>
    ${requested && html`<p class="remark"><${Asked} ...${requested} /></p>`}
    <label class="check">
      <input type="checkbox" checked=${Boolean(mine.keep)} onChange=${(event) => keep(name, event.target.checked)} />
      Renew automatically, while this page is open
    </label>
    <div class="buttons">
      <button type="button" disabled=${state === "busy"} onClick=${() => renew(name)}><${Icon} name="renewed" />Renew</button>
      <button type="button" class="main" disabled=${releasing} onClick=${() => release(name)}><${Icon} name="released" />Release</button>
    </div>
  </div>`;
}

function Answer({ said }) {
  return html`<details class="answer">
    <summary><code>${said.method} /${said.path}</code> <span>${said.status}, ${count(said.ms)} ms</span></summary>
    ${said.body && html`<pre tabindex="0"><code>${JSON.stringify(said.body, null, 2)}</code></pre>`}
  </details>`;
}

function pairs(text) {
  const found = {};
  for (const line of text.split("\n").filter((line) => line.trim())) {
    const cut = line.indexOf("=");
    if (cut < 1) return null;
    found[line.slice(0, cut).trim()] = line.slice(cut + 1).trim();
  }
  return found;
}
