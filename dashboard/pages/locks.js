// The held locks, live.

import { html, useEffect, useRef } from "../view.js";
import { count, NOTHING, plural } from "../model/format.js";
import { isLoaded, listing, load, locks, locksVersion, MOST } from "../model/locks.js";
import { canBegin, isName, RULE } from "../model/name.js";
import { go, lockHref, requery, route } from "../model/route.js";
import { exampleName, may, seesAll, seesSomething } from "../model/session.js";
import { curl } from "../model/terminal.js";
import { Copy } from "../parts/copy.js";
import { Field } from "../parts/field.js";
import { Grid } from "../parts/grid.js";
import { Icon } from "../parts/icon.js";
import { LockState } from "../parts/lock_state.js";
import { Empty, Failed, Loading, Trouble } from "../parts/notice.js";
import { tell } from "../parts/said.js";
import { SEEN, Sight } from "../parts/sight.js";
import { Foreign } from "../parts/text.js";
import { Age, TimeLeft } from "../parts/times.js";
import { Unlisted } from "./locks/unlisted.js";

const COLUMNS = [
  { id: "state", title: "State", cell: (lock) => html`<${LockState} lock=${lock} />` },
  {
    id: "name",
    title: "Name",
    sorts: true,
    cell: (lock) => html`<a href=${lockHref(lock.name)} tabindex="-1"><${Foreign} value=${lock.name} /></a>`,
  },
  { id: "owner", title: "Owner", sorts: true, cell: (lock) => html`<${Foreign} value=${lock.owner} none="not said" />` },
  { id: "age", title: "Held for", sorts: true, cell: (lock) => html`<${Age} since=${lock.acquiredAt} />` },
  { id: "left", title: "Time left", sorts: true, cell: (lock) => html`<${TimeLeft} lock=${lock} />` },
  { id: "fence", title: "Fencing token", sorts: true, cell: (lock) => lock.fence ?? "–" },
  { id: "waiters", title: "Waiters", sorts: true, cell: (lock) => html`<${Waiters} number=${lock.waiters} />` },
];

/** What each column is sorted by; what is not known comes last either way. */
const BY = {
  name: (lock) => lock.name,
  owner: (lock) => lock.owner,
  age: (lock) => (lock.acquiredAt === null ? null : -lock.acquiredAt),
  left: (lock) => lock.expiresAt,
  fence: (lock) => lock.fence,
  waiters: (lock) => lock.waiters,
};

/** The words of the sorts, for where there is no table head to press. */
const SORTS = [
  ["name", "By name"],
  ["owner", "By owner"],
  ["-age", "Longest held"],
  ["left", "Least time left"],
  ["-waiters", "Most waiters"],
  ["-fence", "Newest"],
];

/** The page. */
export function Locks() {
  const { prefix = "", owner = "", sort = "name" } = route.value.query;
  const order = { by: sort.replace(/^-/, ""), down: sort.startsWith("-") };
  useEffect(() => {
    const narrowed = setTimeout(() => !canBegin(prefix) || isLoaded(prefix) || load(prefix), 250);
    return () => clearTimeout(narrowed);
  }, [prefix]);
  useTold(() => plural(found(prefix, owner).length, "lock is", "locks are") + " shown", [prefix, owner]);
  const change = (changed) => requery({ ...route.value.query, ...changed });
  return html`<div class="page locks-page">
    <div class="title">
      <h1 tabindex="-1">Locks</h1>
      <${Count} ...${{ prefix, owner }} />
    </div>
    ${seesSomething() && html`<form class="toolbar" role="search" onSubmit=${(event) => submitted(event, prefix)}>
      <${Field} label="Name begins with" short="Name" icon="search" value=${prefix} hint="/" change=${(value) => change({ prefix: value })} />
      <${Field} label="Owner contains" short="Owner" value=${owner} change=${(value) => change({ owner: value })} />
      <label class="sort">
        <span class="out-of-sight">Sort by</span>
        <select value=${sort} onChange=${(event) => change({ sort: event.target.value })}>
          ${SORTS.some(([by]) => by === sort) || html`<option value=${sort}>${sort}</option>`}
          ${SORTS.map(([by, title]) => html`<option value=${by} key=${by}>${title}</option>`)}
        </select>
      </label>
    </form>`}
    <${List} ...${{ prefix, owner, order }} sortBy=${({ by, down }) => change({ sort: (down ? "-" : "") + by })} />
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

function List({ prefix, owner, order, sortBy }) {
  locksVersion.value;
  const { state, problem, more } = listing.value;
  const rows = sorted(prefix, owner, order);
  if (!seesSomething()) return html`<${Unlisted} />`;
  if (rows.length === 0 && problem) return html`<${Failed} problem=${problem} again=${() => load(prefix)} />`;
  if (rows.length === 0 && state !== "ready") return html`<${Loading} what="Loading the locks…" />`;
  if (rows.length === 0) return html`<${Nothing} ...${{ prefix, owner }} />`;
  return html`<${Trouble} problem=${problem} />
    <${Grid}
      id="locks"
      label="Held locks"
      columns=${COLUMNS}
      rows=${rows}
      keyOf=${(lock) => lock.name}
      heights=${[34, 62]}
      sort=${order}
      onSort=${sortBy}
      open=${(lock) => go(lockHref(lock.name))}
      rowClass=${(lock) => (lock.ended ? "ended" : "")}
    />
    ${more && html`<p class="more-than">There are more than the ${count(MOST)} that are loaded: say how the name begins.</p>`}`;
}

function Nothing({ prefix, owner }) {
  const all = seesAll();
  if (!prefix && !owner) {
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
    ${isName(prefix) && html`<${Named} name=${prefix} />`}
    <button type="button" onClick=${() => requery({})}>Clear the search</button>
  <//>`;
}

/** What is searched for may be the whole name of a lock: one that may not be seen is not said to be free. */
function Named({ name }) {
  const link = html`<a href=${lockHref(name)}><${Foreign} value=${name} /></a>`;
  if (may("view", name)) return html`<p>Look at the ${locks.has(name) ? "" : "free "}lock ${link}.</p>`;
  if (may("acquire", name)) return html`<p>Your key may acquire ${link}, and not see whether it is held.</p>`;
  return html`<p>Your key may not see whether <${Foreign} value=${name} /> is held.</p>`;
}

function Count({ prefix, owner }) {
  locksVersion.value;
  const { state, more, partial } = listing.value;
  if (state !== "ready") return null;
  let waiting = 0;
  for (const lock of locks.values()) if (lock.waiters) waiting += 1;
  const shown = prefix || owner ? `${count(found(prefix, owner).length)} of ` : "";
  const rest = partial ? " so far" : more ? " and more" : "";
  const all = `${shown}${plural(locks.size, "lock", "locks")}${rest}`;
  const scope = seesAll() ? "" : ` ${SEEN}`;
  return html`<p class="count">${all} held${scope}${waiting > 0 && `, ${count(waiting)} waited for`}</p>`;
}

function Waiters({ number }) {
  if (!number) return html`<span class="none">${number ?? NOTHING}</span>`;
  return html`<span class="waiters"><${Icon} name="queued" />${count(number)}</span>`;
}

function submitted(event, prefix) {
  event.preventDefault();
  if (locks.has(prefix)) go(lockHref(prefix));
  else document.querySelector("main .grid")?.dispatchEvent(new Event("grid-enter"));
}

function found(prefix, owner) {
  const part = owner.toLowerCase();
  const rows = [];
  for (const lock of locks.values()) {
    const fits = lock.name.startsWith(prefix) && (!part || (lock.owner ?? "").toLowerCase().includes(part));
    if (fits) rows.push(lock);
  }
  return rows;
}

function sorted(prefix, owner, { by, down }) {
  const value = BY[by] ?? BY.name;
  const sign = down ? -1 : 1;
  return found(prefix, owner).sort((one, other) => {
    const [a, b] = [value(one), value(other)];
    if (a === null || b === null) {
      if (a !== b) return a === null ? 1 : -1;
    } else if (a !== b) return a < b ? -sign : sign;
    return one.name < other.name ? -1 : 1;
  });
}
