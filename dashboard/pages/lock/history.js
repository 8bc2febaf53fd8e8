// The panel with the earlier leases of the lock, newest first, and the end of each, as the gateways have recorded them.

import { html, useEffect, useRef, useSignal } from "../../view.js";
import { ask, lockPath, Problem } from "../../model/api.js";
import { connection } from "../../model/connection.js";
import { watch } from "../../model/feed.js";
import { count, duration, fine, plural, zoneName } from "../../model/format.js";
import { soon } from "../../model/soon.js";
import { Kind, meaningOf } from "../../parts/event_text.js";
import { Export } from "../../parts/export.js";
import { Icon } from "../../parts/icon.js";
import { StateMark } from "../../parts/lock_state.js";
import { Loading, Trouble } from "../../parts/notice.js";
import { Foreign } from "../../parts/text.js";
import { Moment, Span } from "../../parts/times.js";
import { Value } from "../../parts/value.js";

/** So many are shown until somebody wants all of them. */
const FIRST = 10;
/** Records are written behind: so long after an event they are read again. */
const WRITTEN = 3_000;
/** A lease that ends unheard, and one that has become old enough for an entry, tells no event. */
const QUIET = 60_000;

/** The fields of a lease in a spreadsheet. */
const FIELDS = ["fencing_token", "owner", "acquired_at", "acquired_by", "waited_ms", "ended_at", "ended", "ended_by", "reason", "ended_at_latest", "mode", "slot", "order", "rollback", "metadata", "notes"];

/** A shorter wait than this, in milliseconds, is not one to be spoken of. */
const NOTICED = 100;

/** `{kept, problem}`: what `GET /locks/{name}/history` said last, or null; nothing is asked for unless it `sees`. */
export function useHistory(name, sees) {
  const seen = useSignal({ kept: null, problem: null });
  const again = useSignal(() => {});
  const { state } = connection.value;
  useEffect(() => {
    if (!sees) return void (seen.value = { kept: null, problem: null });
    const stop = new AbortController();
    const look = async () => {
      try {
        const { body } = await ask(lockPath(name, "history"), { signal: stop.signal });
        seen.value = { kept: body, problem: null };
      } catch (problem) {
        if (stop.signal.aborted) return;
        if (!(problem instanceof Problem)) throw problem;
        seen.value = { kept: seen.value.kept, problem };
      }
    };
    const written = soon(() => stop.signal.aborted || document.hidden || look(), WRITTEN);
    const unwatch = watch((event) => (event.name === name && event.kind !== "renewed") || event.kind === "gap" ? written() : null);
    const shown = () => document.hidden || look();
    const timer = setInterval(shown, QUIET);
    document.addEventListener("visibilitychange", shown);
    again.value = look;
    look();
    return () => {
      stop.abort();
      clearInterval(timer);
      unwatch();
      document.removeEventListener("visibilitychange", shown);
    };
  }, [name, sees]);
  useEffect(() => {
    // The page has missed the events since the stream was cut, so the history is read again.
    const { kept, problem } = seen.value;
    if (state === "live" && (kept || problem)) again.value();
  }, [state]);
  return seen.value;
}

/** The panel. */
export function History({ kept, problem }) {
  return html`<section class="panel history" aria-labelledby="history">
    <h2 id="history">History <span class="none zone">${zoneName()}</span>${kept?.entries.length > 0 && html`<span class="aside"><${Export} what="history" one="lease" many="leases" fields=${FIELDS} rows=${() => kept.entries} /></span>`}</h2>
    ${!kept && !problem && html`<${Loading} what="Reading the history…" />`}
    <${Trouble} problem=${problem} />
    ${kept && (kept.enabled ? html`<${Leases} kept=${kept} />` : html`<p class="nothing">
        History is off at this gateway: what was before this page was opened is not known.
      </p>`)}
  </section>`;
}

function Leases({ kept: { entries, shorter_leases: shorter, dropped } }) {
  const whole = useSignal(false);
  const list = useRef(null);
  useEffect(() => {
    // The button is gone: whoever pressed it goes on behind what was shown before.
    if (whole.value) list.current.children[FIRST]?.focus();
  }, [whole.value]);
  const shown = whole.value ? entries : entries.slice(0, FIRST);
  return html`${dropped > 0 &&
    html`<p class="remark"><${Icon} name="gap" /> ${plural(dropped, "record is", "records are")} missing: a gateway could not keep ${dropped === 1 ? "it" : "them"}.</p>`}
    ${entries.length === 0 && html`<p class="nothing">${shorter ? "No longer lease is recorded." : "No lease is recorded yet."}</p>`}
    <ol ref=${list}>${shown.map((entry) => html`<${Lease} key=${entry.fencing_token} entry=${entry} />`)}</ol>
    ${entries.length > shown.length &&
    html`<button type="button" class="quiet" onClick=${() => (whole.value = true)}>Show all ${count(entries.length)}</button>`}
    ${shorter && html`<p class="note">${plural(shorter.count, "shorter lease", "shorter leases")} since <${Moment} at=${shorter.since} /></p>`}`;
}

function Lease({ entry }) {
  const { fencing_token: fence, owner, acquired_at: from, acquired_by: by, waited_ms: waited, notes, order, rollback } = entry;
  const facts = [
    waited >= NOTICED && `waited ${fine(waited)}`,
    entry.mode === "shared" && (entry.slot === null ? "shared" : `slot ${entry.slot}`),
    order !== undefined && !rollback && `order ${order}`,
    `fencing token ${fence}`,
  ];
  const metadata = Object.entries(entry.metadata);
  const isOne = by !== null && by === entry.ended_by && !entry.reason;
  return html`<li class=${entry.ended} tabindex="-1">
    <div class="when"><${Span} from=${from} to=${entry.ended_at} /><${Lasted} entry=${entry} /></div>
    <${End} entry=${entry} />
    <div class="what">
      <p class="who"><${Foreign} value=${owner} none="owner not said" whole />${by && html`${" "}<span class="by">acquired ${isOne && `and ${entry.ended} `}by <${Foreign} value=${by} /></span>`}</p>
      ${!isOne && (entry.ended_by || entry.reason) && html`<p>${entry.ended}<${Said} by=${entry.ended_by} reason=${entry.reason} />${meaningOf({ by: null, ...entry })}</p>`}
      ${rollback && html`<p>rollback to ${order}<${Said} reason=${rollback} /></p>`}
      ${notes.map((note, at) => html`<p key=${at}>${note.kind} at <${Moment} at=${note.at} /><${Said} ...${note} /></p>`)}
      <p class="fact">${facts.filter(Boolean).join(", ")}</p>
      ${metadata.length > 0 &&
      html`<ul class="fact">
        ${metadata.map(([key, value]) => html`<li key=${key}><${Foreign} value=${key} />: <${Value} value=${value} /></li>`)}
      </ul>`}
    </div>
  </li>`;
}

/** By whom, and why, behind what was done. */
function Said({ by, reason }) {
  return html`${by && html` by <${Foreign} value=${by} />`}${reason && html`: <${Foreign} value=${reason} whole />`}`;
}

/** For how long it was held, as far as the clocks of the gateways tell. */
function Lasted({ entry: { acquired_at: from, ended_at: to } }) {
  return from && to && html`<span class="lasted">${duration(Date.parse(to) - Date.parse(from))}</span>`;
}

/** How it ended; a lease of which only something on the way was recorded was too short for more. */
function End({ entry: { acquired_at: from, ended, ended_at_latest: latest } }) {
  if (ended) return html`<${Kind} kind=${ended} />`;
  if (latest) return html`<span class="kind unseen late"><${Icon} name="gap" /><span>end not seen, at the latest <${Moment} at=${latest} /></span></span>`;
  return from ? html`<${StateMark} state="held" />` : html`<span class="kind unseen"><${Icon} name="gap" />not recorded</span>`;
}
