// The held locks, live.

import { html, useEffect, useRef, useSignal } from "../view.js";
import { queueOf } from "../model/attention.js";
import { count, plural } from "../model/format.js";
import { keep, kept } from "../model/kept.js";
import { isLoaded, listing, load, locks, locksVersion, MOST_LOADED } from "../model/locks.js";
import { canBegin, isName, RULE } from "../model/name.js";
import { go, lockHref, requery, route } from "../model/route.js";
import { fits, isIncomplete, lower, MOST_FOUND, seeking, WAITERS, want } from "../model/search.js";
import { exampleName, may, mayAnywhere, seesAll, seesSomething } from "../model/session.js";
import { curl } from "../model/terminal.js";
import { Copy } from "../parts/copy.js";
import { Export } from "../parts/export.js";
import { Field } from "../parts/field.js";
import { Grid } from "../parts/grid.js";
import { Icon } from "../parts/icon.js";
import { Empty, Failed, Loading, Trouble } from "../parts/notice.js";
import { tell } from "../parts/said.js";
import { opening } from "../parts/shortcuts.js";
import { SEEN, Sight } from "../parts/sight.js";
import { Foreign } from "../parts/text.js";
import { Bulk } from "./locks/bulk.js";
import { COLUMNS, exported, FIELDS, found as matchIn, searched } from "./locks/columns.js";
import { Filters, isShown } from "./locks/filters.js";
import { Unlisted } from "./locks/unlisted.js";

/** What each column is sorted by; what is not known comes last either way. */
const BY = {
  name: (lock) => lock.name,
  owner: (lock) => lock.owner,
  age: (lock) => (lock.acquiredAt === null ? null : -lock.acquiredAt),
  left: (lock) => lock.expiresAt,
  fence: (lock) => lock.fence,
  waiters: (lock) => lock.waiters,
  wait: waitOf,
};

/** As far as the overview has looked at its queue. */
function waitOf(lock) {
  const longest = queueOf(lock)?.longest;
  return longest ? -longest.since : null;
}

/** The words of the sorts, for where there is no table head to press. */
const SORTS = [
  ["name", "By name"],
  ["owner", "By owner"],
  ["-age", "Longest held"],
  ["left", "Least time left"],
  ["-waiters", "Most waiters"],
  ["-wait", "Longest wait"],
  ["-fence", "Newest"],
];

/** The page. */
export function Locks() {
  const { prefix = "", sort = kept("sort") ?? "name", show = "" } = route.value.query;
  const search = searched();
  const order = { by: sort.replace(/^-/, ""), down: sort.startsWith("-") };
  useEffect(() => {
    const narrowed = setTimeout(() => !canBegin(prefix) || isLoaded(prefix) || load(prefix), 250);
    return () => clearTimeout(narrowed);
  }, [prefix]);
  useEffect(() => {
    // While somebody types nothing is asked for.
    const settled = setTimeout(() => want(prefix, search), 250);
    return () => clearTimeout(settled);
  }, [prefix, search]);
  useEffect(() => () => want("", ""), []);
  const freeing = useSignal(false);
  useTold(() => plural(found(prefix, search, show).length, "lock is", "locks are") + " shown", [prefix, search, show]);
  const change = (changed) => requery({ ...route.value.query, ...changed });
  const sortBy = (chosen) => {
    keep("sort", chosen);
    change({ sort: chosen });
  };
  return html`<div class="page locks-page">
    <div class="title">
      <h1 tabindex="-1">Locks</h1>
      <${Count} ...${{ prefix, search, show }} />
      <div class="actions">
        <button type="button" onClick=${() => (opening.value = true)}><${Icon} name="search" />Open lock…</button>
        ${seesSomething() && html`<${Export} what="locks" one="lock" many="locks" fields=${FIELDS} rows=${() => sorted(prefix, search, show, order).map(exported)} />`}
        ${seesSomething() && mayAnywhere("break") && html`<button type="button" onClick=${() => (freeing.value = true)}><${Icon} name="broken" />Free by owner…</button>`}
      </div>
    </div>
    ${seesSomething() && html`<form class="toolbar" role="search" onSubmit=${(event) => submitted(event, [search, prefix])}>
      <${Field} label="Search name, owner, metadata" short="Search" icon="search" value=${search} hint="/" change=${(value) => change({ search: value, owner: "" })} />
      <${Field} label="Name begins with" short="Begins" value=${prefix} change=${(value) => change({ prefix: value })} />
      <label class="sort">
        <span class="out-of-sight">Sort by</span>
        <select value=${sort} onChange=${(event) => sortBy(event.target.value)}>
          ${SORTS.some(([by]) => by === sort) || html`<option value=${sort}>${sort}</option>`}
          ${SORTS.map(([by, title]) => html`<option value=${by} key=${by}>${title}</option>`)}
        </select>
      </label>
    </form>
    <${Filters} ...${{ show, sort, sortBy, choose: (chosen) => change({ show: chosen }) }} />`}
    ${freeing.value && html`<${Bulk} owner=${search} close=${() => (freeing.value = false)} />`}
    <${List} ...${{ prefix, search, show, order }} sortBy=${({ by, down }) => sortBy((down ? "-" : "") + by)} />
  </div>`;
}

/** How much a search has found is told; that rows come and go by themselves is not. */
function useTold(words, search) {
  const first = useRef(true);
  useEffect(() => {
    if (!first.current) tell("found", words);
    first.current = false;
  }, search);
}

function List({ prefix, search, show, order, sortBy }) {
  locksVersion.value;
  const { state, problem, more } = listing.value;
  const failed = search ? seeking.value.problem : undefined;
  const rows = sorted(prefix, search, show, order);
  if (!seesSomething()) return html`<${Unlisted} />`;
  if (rows.length === 0 && problem) return html`<${Failed} problem=${problem} again=${() => load(prefix)} />`;
  if (rows.length === 0 && state !== "ready") return html`<${Loading} what="Loading the locks…" />`;
  if (rows.length === 0 && isIncomplete(prefix, search)) return html`<${Loading} what="Searching the locks…" />`;
  if (rows.length === 0 && !failed) return html`<${Nothing} ...${{ prefix, search, show }} />`;
  return html`<${Trouble} problem=${problem ?? failed} />
    <${Grid}
      id="locks"
      label="Held locks"
      columns=${COLUMNS}
      rows=${rows}
      keyOf=${(lock) => lock.name}
      heights=${rows.some((lock) => matchIn(lock, lower(search))) ? [52, 82] : [36, 64]}
      sort=${order}
      onSort=${sortBy}
      open=${(lock) => go(lockHref(lock.name))}
      rowClass=${(lock) => `${lock.ended ? "ended" : ""} ${lock.reservation ? "reserved" : ""}`}
    />
    ${more && html`<p class="more-than"><${Beyond} ...${{ prefix, search }} /></p>`}
    ${!more && search && html`<p class="more-than">The search finds the holders of each lock and its first ${count(WAITERS)} waiters.</p>`}`;
}

/** What is said of the locks that are not loaded. */
function Beyond({ prefix, search }) {
  if (!search) return `There are more than the ${count(MOST_LOADED)} that are loaded: search them, or say how the name begins.`;
  if (isIncomplete(prefix, search)) return "Searching the locks that are not loaded…";
  return seeking.value.more && `There are more matches than the ${count(MOST_FOUND)} that were loaded: search for more text.`;
}

function Nothing({ prefix, search, show }) {
  const all = seesAll();
  if (!prefix && !search && !show) {
    const example = exampleName();
    const line = example && curl(["-X POST"], example);
    return html`<${Empty} title=${all ? "No lock is held" : `No lock ${SEEN} is held`}>
      ${!all && html`<p><${Sight} /></p>`}
      <p>${all ? "A lock" : "Such a lock"} appears here as soon as somebody acquires it${line ? ":" : "."}</p>
      ${line && html`<pre><code>${line}</code></pre><${Copy} text=${line} what="the line">Copy the line<//>`}
    <//>`;
  }
  const none = all ? "No held locks match" : `No held locks ${SEEN} match`;
  return html`<${Empty} icon="search" title=${canBegin(prefix) ? none : "No lock can be called that"}>
    ${!canBegin(prefix) && html`<p>${RULE}</p>`}
    ${isName(search || prefix) && html`<${Named} name=${search || prefix} />`}
    <button type="button" onClick=${() => requery({})}>${show && !prefix && !search ? "Show all locks" : "Clear the search"}</button>
  <//>`;
}

/** What is searched for may be the whole name of a lock: one that may not be seen is not said to be free. */
function Named({ name }) {
  const link = html`<a href=${lockHref(name)}><${Foreign} value=${name} /></a>`;
  if (may("view", name)) return html`<p>Look at the ${locks.has(name) ? "" : "free "}lock ${link}.</p>`;
  if (may("acquire", name)) return html`<p>Your key may acquire ${link}, and not see whether it is held.</p>`;
  return html`<p>Your key may not see whether <${Foreign} value=${name} /> is held.</p>`;
}

function Count({ prefix, search, show }) {
  locksVersion.value;
  const { state, more, partial } = listing.value;
  if (state !== "ready") return null;
  let waiting = 0;
  let resting = 0;
  for (const lock of locks.values()) {
    if (lock.waiters) waiting += 1;
    if (lock.rests) resting += 1;
  }
  const shown = prefix || search || show ? `${count(found(prefix, search, show).length)} of ` : "";
  const rest = partial ? " so far" : more ? " and more" : "";
  const all = `${shown}${plural(locks.size, "lock", "locks")}${rest}`;
  const scope = seesAll() ? "" : ` ${SEEN}`;
  return html`<p class="count">${all} held${resting > 0 && ` or resting`}${scope}${waiting > 0 && `, ${count(waiting)} waited for`}</p>`;
}

/** Where it is not the name or the owner that was searched for, it is said what was found. */
function submitted(event, names) {
  event.preventDefault();
  const name = names.find((one) => locks.has(one));
  if (name) go(lockHref(name));
  else document.querySelector("main .grid")?.dispatchEvent(new Event("grid-enter"));
}

function found(prefix, search, show) {
  const part = lower(search);
  const rows = [];
  for (const lock of locks.values()) if (lock.name.startsWith(prefix) && isShown(lock, show) && fits(lock, part)) rows.push(lock);
  return rows;
}

function sorted(prefix, search, show, { by, down }) {
  const value = BY[by] ?? BY.name;
  const sign = down ? -1 : 1;
  return found(prefix, search, show).sort((one, other) => {
    const [a, b] = [value(one), value(other)];
    if (a === null || b === null) {
      if (a !== b) return a === null ? 1 : -1;
    } else if (a !== b) return a < b ? -sign : sign;
    return one.name < other.name ? -1 : 1;
  });
}
