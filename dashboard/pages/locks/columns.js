// The columns of the list of locks: the head and the cell of each.

import { html } from "../../view.js";
import { there, tick } from "../../model/clock.js";
import { count, NOTHING } from "../../model/format.js";
import { lockHref, route } from "../../model/route.js";
import { fits, lower, matched, matchOf } from "../../model/search.js";
import { Holders } from "../../parts/holders.js";
import { Icon } from "../../parts/icon.js";
import { StateMark, stateOf } from "../../parts/lock_state.js";
import { ReservedCell } from "../../parts/reserved.js";
import { Foreign } from "../../parts/text.js";
import { Age, TimeLeft } from "../../parts/times.js";
import { address } from "../../parts/value.js";

/** On a phone, where no head says what a time is, its words do. */
const Timed = ({ word, children }) => html`<span class="unit">${word} </span>${children}`;

export const COLUMNS = [
  { id: "name", title: "Name", sorts: true, cell: (lock) => html`<${Name} lock=${lock} />` },
  { id: "owner", title: "Owner", sorts: true, cell: (lock) => html`<${lock.reservation ? ReservedCell : Holders} lock=${lock} />` },
  { id: "age", title: "Held for", sorts: true, mostFirst: true, cell: (lock) => html`<${Timed} word="held"><${Age} since=${lock.acquiredAt} /><//>` },
  { id: "left", title: "Time left", sorts: true, cell: (lock) => html`<${Timed} word="left"><${TimeLeft} lock=${lock} /><//>` },
  { id: "job", title: "Job", cell: (lock) => html`<${Job} lock=${lock} />` },
  { id: "waiters", title: "Waiters", sorts: true, mostFirst: true, cell: (lock) => html`<${Waiters} lock=${lock} />` },
];

/** The fields of a lock in an export. */
export const FIELDS = ["name", "state", "owner", "holders", "acquired_at", "expires_at", "waiters", "fencing_token", "reserved_until", "reservation_reason", "metadata"];

/** A lock with these fields. */
export function exported(lock) {
  const { name, owner, count: holders, acquiredAt, expiresAt, waiters, fence, reservation, metadata } = lock;
  const time = (at) => (at === null ? null : there(at).toISOString());
  return {
    name, state: stateOf(lock), owner, holders: lock.rests ? 0 : (holders ?? 1), acquired_at: time(acquiredAt), expires_at: time(expiresAt), waiters,
    fencing_token: fence, reserved_until: reservation?.until ?? null, reservation_reason: reservation?.reason ?? null, metadata,
  };
}

/** Addresses of earlier versions have an owner. */
export function searched() {
  const { search, owner } = route.value.query;
  return search || owner || "";
}

/** The state stands behind the name if it is another one than held, and what a search has found below it. */
function Name({ lock }) {
  tick.value;
  const state = stateOf(lock);
  return html`<span class="named">
      <a href=${lockHref(lock.name)} tabindex="-1"><${Foreign} value=${lock.name} /></a>
      ${state === "held" ? html`<span class="out-of-sight">held</span>` : html`<span class="tag"><${StateMark} state=${state} /></span>`}
    </span><${Match} lock=${lock} />`;
}

/** What was found, where neither the name nor the owner shows it: `[where, value]`, or null. */
export function found(lock, part) {
  if (!part || [lock.name, lock.owner].some((text) => text && lower(text).includes(part))) return null;
  const entry = matched(lock.metadata, part);
  if (entry) return entry;
  const match = fits(lock, part) && matchOf(lock.name);
  if (!match) return null;
  const { of, field, name, value } = match;
  return [field === "metadata" ? `${of}, ${name}` : of, value];
}

function Match({ lock }) {
  const [where, value] = found(lock, lower(searched())) ?? [];
  return where !== undefined && html`<span class="match"><${Foreign} value=${where} />: <${Foreign} value=${value} /></span>`;
}

const JOB = /^(job|run|build|pipeline|workflow|task)\b/i;

/** The first entry of the metadata that is a link, or else one that is called so. */
function Job({ lock: { metadata } }) {
  const entries = Object.entries(metadata ?? {});
  const [key, value] = entries.find(([, value]) => address(value)) ?? entries.find(([key]) => JOB.test(key)) ?? [];
  if (key === undefined) return html`<span class="none">${NOTHING}</span>`;
  const to = address(value);
  if (!to) return html`<${Foreign} value=${`${key} ${value}`} />`;
  const last = new URL(to).pathname.split("/").findLast(Boolean) ?? new URL(to).host;
  return html`<a href=${to} target="_blank" rel="noopener noreferrer" tabindex="-1"><${Foreign} value=${`${key} ${last}`} /></a>`;
}

function Waiters({ lock: { waiters } }) {
  if (!waiters) return html`<span class="none">${waiters ?? NOTHING}</span>`;
  return html`<span class="waiters"><${Icon} name="queued" />${count(waiters)}</span>`;
}
