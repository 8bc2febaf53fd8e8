// The section "Needs attention": the longest waits and their holders, holds longer than usual, and incidents of the last day.

import { html } from "../../view.js";
import { attentionVersion, contended, longHolds, queueOf, usualHold } from "../../model/attention.js";
import { now, tick } from "../../model/clock.js";
import { events, feedVersion, INCIDENTS, incidentsHeard } from "../../model/feed.js";
import { figures, figuresProblem, gateways } from "../../model/figures.js";
import { count, duration, plural } from "../../model/format.js";
import { listing, locks, locksVersion } from "../../model/locks.js";
import { href, lockHref } from "../../model/route.js";
import { seesFigures, seesSomething } from "../../model/session.js";
import { isStale } from "../../model/store.js";
import { asTimes, timesLonger } from "../../model/usual.js";
import { Details, Kind } from "../../parts/event_text.js";
import { Holders } from "../../parts/holders.js";
import { Icon } from "../../parts/icon.js";
import { Reserved } from "../../parts/reserved.js";
import { Foreign } from "../../parts/text.js";
import { Moment } from "../../parts/times.js";
import { isWaiting } from "../locks/filters.js";

/** So many lines of each kind are shown. */
const MOST_ROWS = 5;
const DAY = 86_400_000;
/** A shorter wait is none to be spoken of. */
const NOTICED = 10_000;
/** An event and what the gateway has kept of it are that close. */
const SAME = 1_000;

/** The locks that a group holds while it waits for another lock. */
const groupsThatWait = () => [...locks.values()].filter((lock) => !lock.ended && isWaiting(lock));

/** The panel. */
export function Attention() {
  [locksVersion.value, attentionVersion.value, feedVersion.value, tick.value];
  const isReady = listing.value.state === "ready" || !seesSomething();
  const groups = [...(seesSomething() ? [waits(), unusual(), reservations(), incidents()] : []), ...(seesFigures() && figures.value ? [store()] : [])];
  const loud = groups.filter(({ rows }) => rows.length > 0);
  const quiet = groups.filter(({ rows, quiet: words }) => rows.length === 0 && words);
  // A lock that needs attention for two reasons is one.
  const all = new Set(loud.flatMap(({ title, rows }) => rows.filter(({ isSure = true }) => isSure).map(({ name, key }) => name ?? `${title} ${key}`)));
  if (groups.length === 0) return null;
  return html`<section class="panel attention ${isStale() ? "stale" : ""}" aria-labelledby="attention">
    <h2 id="attention">Needs attention${all.size > 0 && html`${" "}<span class="number">${count(all.size)}</span>`}</h2>
    ${isReady && loud.map((group) => html`<${Group} key=${group.title} ...${group} />`)}
    ${isReady && quiet.length > 0 && html`<ul class="quiet-ones">${quiet.map(({ title, quiet: words }) => html`<li key=${title}><${Icon} name="done" /><span>${words}</span></li>`)}</ul>`}
  </section>`;
}

function Group({ title, icon, rows, more, note }) {
  return html`<h3><${Icon} name=${icon} />${title}${note && html`<span class="note">${note}</span>`}</h3>
    <ul>
      ${rows.slice(0, MOST_ROWS).map(
        ({ key, name, what, time }) => html`<li key=${key}>
          ${name && html`<a class="lock" href=${lockHref(name)}><${Foreign} value=${name} /></a>`}
          <span class="what">${what}</span>
          <span class="time">${time}</span>
        </li>`,
      )}
    </ul>
    ${rows.length > MOST_ROWS && html`<p class="note">${more ? html`<a href=${more}>and ${count(rows.length - MOST_ROWS)} more</a>` : `and ${count(rows.length - MOST_ROWS)} more`}</p>`}`;
}

/** Until the first queue has been looked at, the number of waiters of each lock. */
function waits() {
  const crowded = contended();
  const looked = crowded.filter(queueOf).length;
  const rows = crowded.flatMap((lock) => {
    const longest = queueOf(lock)?.longest;
    const waited = longest && now() - longest.since;
    if (longest ? waited < NOTICED : looked > 0) return [];
    const others = lock.waiters - 1;
    const who = longest && html`<${Foreign} value=${longest.owner} none="a waiter without an owner" />${others > 0 && ` and ${plural(others, "other", "others")}`} ${others > 0 ? "wait" : "waits"}`;
    return [{
      key: lock.name,
      name: lock.name,
      isSure: Boolean(longest),
      // Who began to wait at about the same time has waited equally long.
      began: longest ? Math.round(longest.since / NOTICED) : Infinity,
      waiters: lock.waiters,
      time: longest ? duration(waited) : "",
      what: html`${who ?? plural(lock.waiters, "waiter", "waiters")}, held up by <${Holders} lock=${lock} foreign="a foreign client" />${lock.acquiredAt !== null && ` (held for ${duration(now() - lock.acquiredAt)})`}${isWaiting(lock) && html`, which <strong>waits itself</strong> for another lock`}`,
    }];
  });
  rows.sort((one, other) => one.began - other.began || other.waiters - one.waiters);
  const groups = groupsThatWait().length;
  const note = groups > 0 && html`<a href=${href("locks", { show: "waiting" })}>${plural(groups, "lock is", "locks are")} held by a group that still waits</a>`;
  return { title: "Longest waits", icon: "queued", rows, note, more: href("locks", { show: "waited-for", sort: "-wait" }), quiet: of("Nobody waits for long", looked, crowded.length, "locks with waiters were looked at") };
}

/** What is said of all that were looked at; nothing if none of them was. */
function of(words, looked, all, what) {
  if (looked === all) return words;
  return looked > 0 && `${words}: ${count(looked)} of ${count(all)} ${what}`;
}

function unusual() {
  const held = longHolds();
  const known = held.filter(({ name }) => usualHold(name));
  const rows = known.flatMap((lock) => {
    const usual = usualHold(lock.name);
    const times = timesLonger(now() - lock.acquiredAt, usual);
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
  const quiet = held.length === 0 ? "No lock is held for a minute" : of("No hold is longer than usual", known.length, held.length, "holds of a minute or more could be compared");
  return { title: "Held longer than usual", icon: "expired", rows, more: href("locks", { sort: "-age" }), quiet };
}

function reservations() {
  const rows = contended().filter(({ reservation }) => reservation).map(({ name, owner, reservation, waiters, expiresAt }) => ({
    key: name,
    name,
    time: plural(waiters, "waiter", "waiters"),
    what: html`<${Reserved} ...${{ reservation, owner, expiresAt }} />`,
  }));
  return { title: "Reservations that are waited for", icon: "reserved", rows, more: href("locks", { show: "reserved" }), quiet: "No reservation is waited for" };
}

/** Those that the gateway has kept, and those that this page has heard. */
function incidents() {
  const { since, incidents: heard } = incidentsHeard();
  const kept = figures.value?.incidents;
  const day = Date.now() - DAY;
  const isSame = (one) => (other) => one.kind === other.kind && one.name === other.name && Math.abs(Date.parse(one.at) - Date.parse(other.at)) < SAME;
  const all = [...heard, ...(kept ?? []).filter((one) => !heard.some(isSame(one)))].filter(({ at }) => Date.parse(at) >= day);
  all.sort((one, other) => Date.parse(other.at) - Date.parse(one.at));
  const rows = all.map((event, place) => ({
    key: all.length - place,
    name: event.name,
    time: html`<${Moment} at=${event.at} />`,
    what: html`<${Kind} kind=${event.kind} />${" "}<span>${event.owner && html`<${Foreign} value=${event.owner} />, `}<${Details} event=${event} /></span>`,
  }));
  const more = href("events", { kinds: INCIDENTS.join(",") });
  // A gateway knows of no earlier time than its start.
  const from = kept ? new Date(Math.max(day, Date.now() - figures.value.uptime_ms)).toISOString() : since;
  const quiet = from && html`Nothing broken, lost or refused since <${Moment} at=${from} />`;
  return { title: "Broken, lost or refused in the last day", icon: "broken", rows, more, quiet };
}

const CHANGES = { "failed-over": "The store failed over", moved: "The store moved", restarted: "A server of the store restarted", away: "The store does not answer", back: "The store answers again" };

function store() {
  const known = gateways();
  const bad = known.flatMap(({ stats: { instance, checks }, time }) =>
    checks.filter(({ status }) => status !== "passing" && status !== "draining").map(({ name, status, detail }) => ({
      key: `${instance} ${name}`,
      time: Date.now() - time < NOTICED ? "now" : `${duration(Date.now() - time)} ago`,
      what: html`<strong>${name}: ${status}</strong>${known.length > 1 && html` at gateway <span class="mono">${instance.slice(0, 8)}</span>`}${detail && html`, <${Foreign} value=${detail} whole />`}`,
    })));
  // An event tells of a change before the next figures do.
  const heard = events().filter(({ kind, change }) => kind === "store-changed" && change).map(({ change, at }) => ({ ...change, at }));
  const changes = figures.value.store_changes ?? [];
  const told = new Set(changes.map(({ text }) => text));
  const all = [...heard.filter(({ text }) => !told.has(text)).reverse(), ...changes];
  const rows = [...bad, ...all.map(({ at, kind, text }, place) => ({
    key: `${at} ${place}`,
    time: html`<${Moment} at=${at} />`,
    what: html`<strong>${CHANGES[kind] ?? `Store ${kind}`}:</strong> <${Foreign} value=${text} whole />`,
  }))];
  const quiet = figuresProblem.value === null && (known.length > 1 ? `The store and the ${count(known.length)} gateways that have answered are well` : "The store and the gateway are well");
  const more = href("events", { kinds: "store-changed" });
  const note = all.length > 0 && html`<a href=${more}>Events of the store</a>`;
  return { title: "Store and gateway", icon: "warning", rows, more, note, quiet };
}
