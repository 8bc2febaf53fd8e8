// What happens, as it happens: with filters, a pause, and an export.

import { html, useEffect, useRef, useSignal } from "../view.js";
import { count, plural, zoneName } from "../model/format.js";
import { CHOICES, events, feedVersion, isOfCaller, KEPT, lastNumber } from "../model/feed.js";
import { go, lockHref, requery, route } from "../model/route.js";
import { seesAll, seesSomething } from "../model/session.js";
import { Details, Kind } from "../parts/event_text.js";
import { Export } from "../parts/export.js";
import { Field } from "../parts/field.js";
import { Grid } from "../parts/grid.js";
import { Icon } from "../parts/icon.js";
import { Empty } from "../parts/notice.js";
import { SEEN } from "../parts/sight.js";
import { Foreign } from "../parts/text.js";
import { Moment } from "../parts/times.js";

const COLUMNS = [
  { id: "at", title: "Time", cell: (event) => html`<${Moment} at=${event.at} />` },
  { id: "kind", title: "Event", cell: (event) => html`<${Kind} kind=${event.kind} />` },
  {
    id: "name",
    title: "Lock",
    cell: (event) =>
      event.name
        ? html`<a href=${lockHref(event.name)} tabindex="-1"><${Foreign} value=${event.name} /></a>`
        : html`<span class="none">all locks</span>`,
  },
  { id: "owner", title: "Owner", cell: (event) => isOfCaller(event) && html`<${Foreign} value=${event.owner} none="not said" />` },
  { id: "details", title: "Details", cell: (event) => html`<${Details} event=${event} />` },
  { id: "fence", title: "Fencing token", cell: (event) => event.fencing_token ?? "" },
];

/** The fields of an event in a spreadsheet. */
const FIELDS = ["at", "kind", "name", "owner", "fencing_token", "mode", "slot", "expires_in_ms", "waited_ms", "position", "order", "by", "reason", "reservation", "waiting", "change", "id"];

/** As the gateway told them, oldest first. */
const told = (rows) => rows.reverse().map(({ number: _, heardAt: __, ...event }) => event);

/** The page. */
export function Events() {
  const { prefix = "", owner = "", kinds = "", renewals = "" } = route.value.query;
  const chosen = new Set(kinds.split(",").filter((kind) => CHOICES.includes(kind)));
  const paused = useSignal(false);
  const scrolled = useSignal(false);
  const held = useRef(null);
  const change = (changed) => requery({ ...route.value.query, ...changed });
  const toggle = (kind) => {
    chosen.has(kind) ? chosen.delete(kind) : chosen.add(kind);
    change({ kinds: [...chosen].join(",") });
  };
  // Who reads further down, or has paused, is not pushed about: what comes waits, and is counted.
  const still = paused.value || scrolled.value;
  if (!still) held.current = null;
  else held.current ??= lastNumber();
  useEffect(() => () => (held.current = null), []);
  return html`<div class="page events-page">
    <div class="title">
      <h1 tabindex="-1">Events</h1>
      <span class="space"></span>
      <button type="button" aria-pressed=${paused.value} onClick=${() => (paused.value = !paused.value)}>
        <${Icon} name=${paused.value ? "play" : "pause"} />${paused.value ? "Go on" : "Pause"}
      </button>
      <${Export} what="events" one="event" many="events" fields=${FIELDS} isLines rows=${() => told(found(prefix, owner, chosen, renewals))} />
    </div>
    <div class="toolbar" role="search">
      <${Field} label="Name begins with" short="Name" icon="search" value=${prefix} hint="/" change=${(value) => change({ prefix: value })} />
      <${Field} label="Owner contains" short="Owner" value=${owner} change=${(value) => change({ owner: value })} />
    </div>
    <div class="kinds" role="group" aria-label="Kinds of events">
      ${CHOICES.map(
        (kind) => html`<button type="button" class="chip" key=${kind} aria-pressed=${chosen.has(kind)} onClick=${() => toggle(kind)}>
          <${Icon} name=${kind} />${kind}
        </button>`,
      )}
      <label class="check">
        <input type="checkbox" checked=${Boolean(renewals)} onChange=${(event) => change({ renewals: event.target.checked ? "shown" : "" })} />
        renewals
      </label>
      ${chosen.size > 0 && html`<button type="button" class="quiet" onClick=${() => change({ kinds: "" })}>All kinds</button>`}
    </div>
    <${List} ...${{ prefix, owner, chosen, renewals, until: held.current, paused }} scrolled=${(top) => (scrolled.value = top > 20)} />
  </div>`;
}

function List({ prefix, owner, chosen, renewals, until, paused, scrolled }) {
  feedVersion.value;
  const all = found(prefix, owner, chosen, renewals);
  const rows = until === null ? all : all.filter((event) => event.number <= until);
  const waiting = all.length - rows.length;
  if (!seesSomething()) {
    return html`<${Empty} icon="events" title="Your key may not see any lock">To see locks, a key needs the permission <code>view</code>.<//>`;
  }
  const onward = () => {
    paused.value = false;
    const grid = document.querySelector("main .grid");
    if (grid) grid.scrollTop = 0;
  };
  const nothing = seesAll() ? "Nothing has happened yet" : `Nothing ${SEEN} has happened yet`;
  return html`<p class="count">
      ${plural(rows.length, "event", "events")}${events().length >= KEPT && `, of the last ${count(KEPT)}`}
      ${waiting > 0 && html`<button type="button" class="fresh" onClick=${onward}><${Icon} name="up" />${count(waiting)} new</button>`}
    </p>
    ${rows.length === 0
      ? html`<${Empty} icon="events" title=${events().length ? "No events match" : nothing}>
          <p>Events appear here as they happen, behind those that the gateway has kept.${!renewals && " Renewals are not shown."}</p>
        <//>`
      : html`<${Grid}
          id="events"
          label="Events, newest first"
          columns=${[{ ...COLUMNS[0], title: `Time, ${zoneName()}` }, ...COLUMNS.slice(1)]}
          rows=${rows}
          keyOf=${(event) => event.number}
          heights=${[32, 58]}
          open=${(event) => event.name && go(lockHref(event.name))}
          scrolled=${scrolled}
          rowClass=${(event) => event.kind}
        />`}`;
}

/** Those that are looked for, newest first. */
function found(prefix, owner, kinds, renewals) {
  const part = owner.toLowerCase();
  const rows = [];
  for (const event of events()) {
    if (event.kind === "renewed" ? !renewals : kinds.size > 0 && !kinds.has(event.kind)) continue;
    // A gap concerns every lock.
    const fits = !event.name || (event.name.startsWith(prefix) && (!part || (event.owner ?? "").toLowerCase().includes(part)));
    if (fits) rows.push(event);
  }
  return rows.reverse();
}
