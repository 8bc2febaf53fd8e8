// The section "Needs attention": the longest waits and their holders, holds longer than usual, and incidents of the last day.

import { html } from "../../view.js";
import { attentionVersion, contended, isWork, queueOf, usualHold } from "../../model/attention.js";
import { now, tick } from "../../model/clock.js";
import { events, feedVersion } from "../../model/feed.js";
import { figures } from "../../model/figures.js";
import { count, duration, plural } from "../../model/format.js";
import { listing, locks, locksVersion } from "../../model/locks.js";
import { href, lockHref } from "../../model/route.js";
import { seesFigures, seesSomething } from "../../model/session.js";
import { asTimes, timesLonger } from "../../model/usual.js";
import { Details, Kind } from "../../parts/event_text.js";
import { Holders } from "../../parts/holders.js";
import { Icon } from "../../parts/icon.js";
import { Reserved } from "../../parts/reserved.js";
import { Foreign } from "../../parts/text.js";
import { Moment } from "../../parts/times.js";
import { isWaiting } from "../locks/filters.js";

/** So many lines of each kind are shown. */
const MOST = 5;
const DAY = 86_400_000;
/** A shorter wait is none to be spoken of. */
const NOTICED = 10_000;

/** The kinds of event that need somebody. */
const INCIDENTS = ["broken", "lost", "stale-write-refused"];

/** The locks that a group holds while it waits for another lock. */
export const groupsThatWait = () => [...locks.values()].filter((lock) => !lock.ended && isWaiting(lock));

/** The panel. */
export function Attention() {
  [locksVersion.value, attentionVersion.value, feedVersion.value, tick.value];
  const isReady = listing.value.state === "ready" || !seesSomething();
  const groups = [...(seesSomething() ? [waits(), unusual(), reservations(), incidents()] : []), ...(seesFigures() && figures.value ? [store()] : [])];
  const loud = groups.filter(({ rows }) => rows.length > 0);
  const quiet = groups.filter(({ rows }) => rows.length === 0);
  if (groups.length === 0) return null;
  return html`<section class="panel attention" aria-labelledby="attention">
    <h2 id="attention">Needs attention${loud.length > 0 && html`${" "}<span class="number">${count(loud.reduce((sum, { rows }) => sum + rows.length, 0))}</span>`}</h2>
    ${isReady && loud.map((group) => html`<${Group} key=${group.title} ...${group} />`)}
    ${isReady && quiet.length > 0 && html`<ul class="quiet-ones">${quiet.map(({ quiet: words }) => html`<li key=${words}><${Icon} name="done" />${words}</li>`)}</ul>`}
  </section>`;
}

function Group({ title, icon, rows, more, note }) {
  return html`<h3><${Icon} name=${icon} />${title}${note && html`<span class="note">${note}</span>`}</h3>
    <ul>
      ${rows.slice(0, MOST).map(
        ({ key, name, what, time }) => html`<li key=${key}>
          ${name && html`<a class="lock" href=${lockHref(name)}><${Foreign} value=${name} /></a>`}
          <span class="what">${what}</span>
          <span class="time">${time}</span>
        </li>`,
      )}
    </ul>
    ${rows.length > MOST && html`<p class="note">${more ? html`<a href=${more}>and ${count(rows.length - MOST)} more</a>` : `and ${count(rows.length - MOST)} more`}</p>`}`;
}

/** Until the first queue has been looked at, the number of waiters of each lock. */
function waits() {
  const crowded = contended();
  const isLooked = crowded.some(({ name }) => queueOf(name));
  const rows = crowded.flatMap((lock) => {
    const longest = queueOf(lock.name);
    const waited = longest && now() - longest.since;
    if (longest ? waited < NOTICED : isLooked) return [];
    const others = lock.waiters - 1;
    const who = longest && html`<${Foreign} value=${longest.owner} none="a waiter without an owner" />${others > 0 && ` and ${plural(others, "other", "others")}`} ${others > 0 ? "wait" : "waits"}`;
    return [{
      key: lock.name,
      name: lock.name,
      waited,
      time: longest ? duration(waited) : "",
      what: html`${who ?? plural(lock.waiters, "waiter", "waiters")}, held up by <${Holders} lock=${lock} foreign="a foreign client" />${lock.acquiredAt !== null && ` (held for ${duration(now() - lock.acquiredAt)})`}${isWaiting(lock) && html`, which <strong>waits itself</strong> for another lock`}`,
    }];
  });
  rows.sort((one, other) => (other.waited ?? 0) - (one.waited ?? 0));
  const groups = groupsThatWait().length;
  const note = groups > 0 && html`<a href=${href("locks", { show: "waiting" })}>${plural(groups, "lock is", "locks are")} held by a group that still waits</a>`;
  return { title: "Longest waits", icon: "queued", rows, note, more: href("locks", { show: "waited-for", sort: "-waiters" }), quiet: "Nobody waits for long" };
}

function unusual() {
  const rows = [...locks.values()].flatMap((lock) => {
    const usual = isWork(lock) && usualHold(lock.name);
    const times = usual ? timesLonger(now() - lock.acquiredAt, usual) : null;
    if (times === null) return [];
    return [{
      key: lock.name,
      name: lock.name,
      times,
      time: duration(now() - lock.acquiredAt),
      what: html`<${Holders} lock=${lock} /> holds it <strong>${asTimes(times)} longer than usual</strong> (${duration(usual.hold.median)} is the median of ${usual.leases})${lock.waiters > 0 && `, with ${plural(lock.waiters, "waiter", "waiters")}`}`,
    }];
  });
  rows.sort((one, other) => other.times - one.times);
  return { title: "Held longer than usual", icon: "expired", rows, more: href("locks", { sort: "-age" }), quiet: "No hold is longer than usual" };
}

function reservations() {
  const rows = contended().filter(({ reservation }) => reservation).map(({ name, reservation, waiters, expiresAt }) => ({
    key: name,
    name,
    time: plural(waiters, "waiter", "waiters"),
    what: html`<${Reserved} ...${{ reservation, expiresAt }} />`,
  }));
  return { title: "Reservations that are waited for", icon: "reserved", rows, more: href("locks", { show: "reserved" }), quiet: "No reservation is waited for" };
}

function incidents() {
  const since = Date.now() - DAY;
  const found = events().filter(({ kind, at }) => INCIDENTS.includes(kind) && Date.parse(at) >= since);
  const rows = found.reverse().map((event) => ({
    key: event.number,
    name: event.name,
    time: html`<${Moment} at=${event.at} />`,
    what: html`<${Kind} kind=${event.kind} />${" "}<span class="said-of">${event.owner && html`<${Foreign} value=${event.owner} />, `}<${Details} event=${event} /></span>`,
  }));
  const more = href("events", { kinds: INCIDENTS.join(",") });
  return { title: "Broken, lost or refused in the last day", icon: "broken", rows, more, quiet: "Nothing broken, lost or refused in the last day, as far as the gateway has kept events" };
}

function store() {
  const { checks, store_changes: changes = [] } = figures.value;
  const bad = checks.filter(({ status }) => status !== "passing" && status !== "draining").map(({ name, status, detail }) => ({
    key: name,
    time: "now",
    what: html`<strong>${name}: ${status}</strong>${detail && html`, <${Foreign} value=${detail} whole />`}`,
  }));
  // An event tells of a change before the next figures do.
  const heard = events().filter(({ kind, change }) => kind === "store-changed" && change).map(({ change, at }) => ({ ...change, at }));
  const known = new Set(changes.map(({ text }) => text));
  const all = [...heard.filter(({ text }) => !known.has(text)).reverse(), ...changes];
  const rows = [...bad, ...all.map(({ at, kind, text }, place) => ({
    key: `${at} ${place}`,
    time: html`<${Moment} at=${at} />`,
    what: html`<strong>Store ${kind}:</strong> <${Foreign} value=${text} whole />`,
  }))];
  return { title: "Store and gateway", icon: "warning", rows, quiet: "The store and the gateway are well" };
}
