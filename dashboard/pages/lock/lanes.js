// The leases and the waits of the lock over the last hours, as bars: by its history, and by who holds it and waits now.

import { html, useRef, useSignal } from "../../view.js";
import { here, now, there, tick } from "../../model/clock.js";
import { clock, count, duration, plural, timeLabel, zoneName, zoneOffset } from "../../model/format.js";
import { plain } from "../../model/visible.js";
import { ownerOf } from "../../parts/holders.js";
import { Foreign } from "../../parts/text.js";

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
/** The spans that are offered; the first is the shortest to which the view is zoomed by them. */
const SPANS = [[HOUR, "1 h"], [6 * HOUR, "6 h"], [DAY, "24 h"], [7 * DAY, "7 days"]];
const SHORTEST = MINUTE;
/** Between two times below the bars. */
const STEPS = [10_000, 30_000, MINUTE, 2 * MINUTE, 5 * MINUTE, 10 * MINUTE, 15 * MINUTE, 30 * MINUTE, HOUR, 2 * HOUR, 4 * HOUR, 8 * HOUR, 12 * HOUR, DAY, 2 * DAY];
const TICKS = 5;
/** So many rows of bars are shown of leases that share the lock, and of waits. */
const ROWS = 12;
/** A shorter wait is none to be drawn. */
const NOTICED = 1_000;

const WORDS = { held: "holds it", released: "released", expired: "expired", broken: "broken", lost: "lost", unseen: "end not seen", waiting: "waited", waits: "waits" };

/** Each bar: `{key, from, to, kind, owner}`, on our clock. A bar of a wait has the kind `waiting`, or `waits` while it lasts. */
function barsOf(entries, lock) {
  const bars = [];
  const current = new Set(lock.holders.map(({ fencing_token: fence }) => fence));
  const isWhole = lock.holder_count <= lock.holders.length;
  for (const { fencing_token: fence, owner, acquired_at: begun, ended, ended_at: end, ended_at_latest: latest, waited_ms: waited } of entries) {
    if (!begun) continue;
    const from = here(Date.parse(begun));
    // The end of a lease is recorded some seconds late: until then the next grant tells of it.
    const isOver = !end && !latest && isWhole && !current.has(fence);
    const next = Math.min(now(), ...lock.holders.map(({ shown }) => shown.acquiredAt ?? Infinity).filter((at) => at > from));
    const to = end || latest ? here(Date.parse(end ?? latest)) : isOver ? next : now();
    bars.push({ key: `lease ${fence}`, from, to, kind: ended ?? (latest || isOver ? "unseen" : "held"), owner });
    if (waited >= NOTICED) bars.push({ key: `wait ${fence}`, from: from - waited, to: from, kind: "waiting", owner });
  }
  for (const { fencing_token: fence, shown, ...holder } of lock.holders) {
    const key = `lease ${fence}`;
    if (shown.acquiredAt !== null && !bars.some((bar) => bar.key === key)) bars.push({ key, from: shown.acquiredAt, to: now(), kind: "held", owner: ownerOf(holder) });
  }
  // A place in the queue becomes that of another waiter.
  for (const { owner, waited_ms: waited } of lock.waiters) {
    const before = bars.filter((bar) => bar.kind === "waits" && bar.owner === owner).length;
    bars.push({ key: `waits ${before} ${owner}`, from: lock.sentAt - waited, to: now(), kind: "waits", owner });
  }
  return bars.sort((one, other) => one.from - other.from || one.to - other.to);
}

const isWait = ({ kind }) => kind === "waiting" || kind === "waits";

/** The bars in rows, in which none covers another. */
function rowsOf(bars) {
  const rows = [];
  for (const bar of bars) {
    const row = rows.find((one) => one.at(-1).to <= bar.from);
    row ? row.push(bar) : rows.push([bar]);
  }
  return rows;
}

/** The panel. */
export function Lanes({ kept, lock, usual }) {
  tick.value;
  // Null: the end is now, and moves on.
  const view = useSignal({ span: null, end: null });
  const active = useSignal(null);
  const box = useRef(null);
  const bars = barsOf(kept?.enabled ? kept.entries : [], lock);
  if (bars.length === 0) return null;
  const oldest = now() - bars[0].from;
  const span = view.value.span ?? (SPANS.find(([one]) => one >= oldest) ?? SPANS.at(-1))[0];
  // In steps too small to see, or every bar would be drawn anew each second.
  const step = span / 1_000;
  const end = view.value.end ?? Math.ceil(now() / step) * step;
  const from = end - span;
  const holds = rowsOf(bars.filter((bar) => !isWait(bar)));
  const waits = rowsOf(bars.filter(isWait));
  const rows = [...holds.slice(0, ROWS), ...waits.slice(0, ROWS)].flat();
  // What the arrows reach, by time.
  const drawn = bars.filter((bar) => rows.includes(bar));
  const shown = bars.filter((bar) => bar.to >= from && bar.from <= end);
  const at = bars.find((bar) => bar.key === active.value) ?? null;
  const place = (time) => ((time - from) / span) * 100;

  const look = (wanted, middle) => {
    const next = Math.max(SHORTEST, Math.min(wanted, SPANS.at(-1)[0]));
    const last = middle + next / 2;
    view.value = { span: next, end: last >= now() ? null : last };
  };
  const zoom = (times) => look(span * times, at && shown.includes(at) ? (at.from + at.to) / 2 : end - span / 2);
  const move = (parts) => look(span, end - span / 2 + parts * span);
  const go = (to) => {
    const bar = drawn[Math.max(0, Math.min(drawn.length - 1, to))];
    active.value = bar.key;
    if (bar.to < from || bar.from > end) look(span, (bar.from + bar.to) / 2);
    // Behind the next drawing: before it, the bar may not be there.
    requestAnimationFrame(() => box.current?.querySelector('[tabindex="0"]')?.focus());
  };
  const onKeyDown = (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const index = drawn.indexOf(at);
    const moves = { ArrowLeft: index - 1, ArrowRight: index + 1, Home: 0, End: drawn.length - 1 };
    if (event.key in moves) go(moves[event.key]);
    else if (event.key === "+" || event.key === "=") zoom(0.5);
    else if (event.key === "-") zoom(2);
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  // Tab moves the focus to this bar only; the arrow keys move it from there to the other bars.
  const first = at && shown.includes(at) && drawn.includes(at) ? at : drawn.findLast((bar) => shown.includes(bar));
  const row = (one, index) => html`<div class="lane" key=${index}>
    ${one.filter((bar) => shown.includes(bar)).map((bar) => {
      const [left, right] = [Math.max(0, place(bar.from)), Math.min(100, place(bar.to))];
      return html`<button
        type="button"
        class="span ${bar.kind}"
        key=${bar.key}
        tabindex=${bar === first ? "0" : "-1"}
        aria-label=${said(bar)}
        aria-pressed=${bar === at}
        style=${{ left: `${left}%`, width: `${Math.max(0, right - left)}%` }}
        onFocus=${() => (active.value = bar.key)}
        onPointerEnter=${() => (active.value = bar.key)}
        onClick=${() => (active.value = bar.key)}
      ></button>`;
    })}
  </div>`;
  const kinds = [...new Set(shown.map(({ kind }) => kind))];
  const hidden = Math.max(0, holds.length - ROWS) + Math.max(0, waits.length - ROWS);
  return html`<section class="panel lanes" aria-labelledby="lanes">
    <h2 id="lanes">Timeline <span class="none zone">${zoneName()}</span>
      <span class="zoom" role="group" aria-label="Zoom">
        <button type="button" class="bare" aria-label="Earlier" onClick=${() => move(-0.5)}>‹</button>
        ${SPANS.map(([one, title]) => html`<button type="button" class="bare" key=${title} aria-pressed=${span === one && view.value.end === null} onClick=${() => (view.value = { span: one, end: null })}>${title}</button>`)}
        <button type="button" class="bare" aria-label="Zoom out" onClick=${() => zoom(2)}>−</button>
        <button type="button" class="bare" aria-label="Zoom in" onClick=${() => zoom(0.5)}>+</button>
        <button type="button" class="bare" aria-label="Later" disabled=${view.value.end === null} onClick=${() => move(0.5)}>›</button>
      </span>
    </h2>
    <div class="tracks" ref=${box} role="group" aria-label="Leases and waits; arrow keys move, + and - zoom" onKeyDown=${onKeyDown}>
      ${ticks(from, end).map((time) => html`<span class="tick" key=${time} style=${{ left: `${place(time)}%` }} aria-hidden="true"><span>${timeLabel(there(time + 500), span >= 2 * DAY)}</span></span>`)}
      ${holds.slice(0, ROWS).map(row)}
      ${waits.length > 0 && html`<div class="waits">${waits.slice(0, ROWS).map(row)}</div>`}
    </div>
    <p class="at">${at ? html`<${Said} bar=${at} />` : html`<span class="none">${shown.length === 0 ? "Nothing was recorded in this time." : plural(shown.filter((bar) => !isWait(bar)).length, "lease", "leases") + " in this time"}</span>`}</p>
    <ul class="legend">${kinds.map((kind) => html`<li key=${kind}><span class="span ${kind}" aria-hidden="true"></span>${WORDS[kind]}</li>`)}</ul>
    ${hidden > 0 && html`<p class="note">${count(hidden)} more rows are not shown.</p>`}
    ${usual && html`<${Usual} usual=${usual} />`}
  </section>`;
}

/** How long the lock is held and waited for: half of the leases, and nearly all. */
function Usual({ usual: { leases, hold, wait } }) {
  return html`<dl class="facts usual">
    <div><dt>Held, median</dt><dd>${duration(hold.median)}</dd></div>
    <div><dt>Held, 95% within</dt><dd>${duration(hold.p95)}</dd></div>
    ${wait && html`<div><dt>Waited, median</dt><dd>${duration(wait.median)}</dd></div>
      <div><dt>Waited, 95% within</dt><dd>${duration(wait.p95)}</dd></div>`}
    <div><dt>Of the last</dt><dd>${plural(leases, "lease", "leases")}</dd></div>
  </dl>`;
}

/** The times below the bars, at full minutes, hours or days of the viewer. */
function ticks(from, end) {
  const step = STEPS.find((one) => (end - from) / one <= TICKS) ?? STEPS.at(-1);
  const zone = zoneOffset(there(from));
  const first = Math.ceil((there(from) - zone) / step) * step + zone - (there(from) - from);
  const found = [];
  for (let time = first; time <= end; time += step) found.push(time);
  // A label at an edge would be cut.
  return found.filter((time) => time - from > (end - from) * 0.03 && end - time > (end - from) * 0.03);
}

const lasted = ({ from, to }) => duration(to - from);

/** A bar in words, for its label. */
function said(bar) {
  const who = bar.owner ? plain(bar.owner) : "owner not said";
  return `${who}, ${WORDS[bar.kind]}, ${lasted(bar)}, from ${clock(there(bar.from))}`;
}

function Said({ bar }) {
  const { kind, owner, from, to } = bar;
  const isOpen = kind === "held" || kind === "waits";
  return html`<strong><${Foreign} value=${owner} none="owner not said" whole /></strong> ${isWait(bar) ? (isOpen ? "has waited" : "waited") : isOpen ? "has held it" : "held it"} ${lasted(bar)}, ${isOpen ? `since ${clock(there(from))}` : `${clock(there(from))} – ${clock(there(to), there(from))}`}${!isWait(bar) && !isOpen && html`, <span class="kind ${kind}">${WORDS[kind]}</span>`}`;
}
