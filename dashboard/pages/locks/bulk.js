// Asks every holder of one owner to release its locks, or breaks the leases: first it shows what that hits.

import { html, useLayoutEffect, useRef, useSignal } from "../../view.js";
import { ask, lockPath, Problem } from "../../model/api.js";
import { times } from "../../model/clock.js";
import { count, plural } from "../../model/format.js";
import { LONGEST_OWNER } from "../../model/name.js";
import { lockHref } from "../../model/route.js";
import { may, visiblePrefixes } from "../../model/session.js";
import { Dialog } from "../../parts/dialog.js";
import { Line } from "../../parts/line.js";
import { Trouble } from "../../parts/notice.js";
import { Foreign } from "../../parts/text.js";
import { Age } from "../../parts/times.js";
import { GRACE, Way } from "../../parts/way.js";
import { Reason, RESERVED } from "../lock/break.js";

/** So many leases are broken in one go. */
const MOST_BROKEN = 1_000;
const PAGE = 1_000;
/** So many requests are under way at once. */
const ABREAST = 4;

/**
 * Every lease of exactly this owner, `{name, fence, acquiredAt, may, reserved}`, and the names of locks for which a request
 * of it waits, as far as a search finds the request before a holder.
 */
async function hitsOf(owner, stop) {
  const leases = [];
  const waits = new Set();
  for (const prefix of visiblePrefixes("")) {
    let cursor = null;
    do {
      const query = new URLSearchParams({ limit: PAGE, search: owner });
      if (prefix && prefix !== "*") query.set("prefix", prefix);
      if (cursor) query.set("cursor", cursor);
      const { body, sentAt } = await ask(`locks?${query}`, { signal: stop });
      for (const { name, holders, match } of body.locks) {
        if (match?.of === "waiter" && match.field === "owner" && match.value === owner) waits.add(name);
        for (const holder of holders.filter((one) => one.owner === owner)) {
          const { fencing_token: fence, reservation } = holder;
          const isKnown = leases.some((one) => one.name === name && one.fence === fence);
          if (!isKnown) leases.push({ name, fence, may: may("break", name), reserved: Boolean(reservation), ...times(holder, sentAt) });
        }
      }
      cursor = body.next_cursor;
    } while (cursor && leases.length <= MOST_BROKEN);
  }
  return { owner, leases: leases.sort((one, other) => (one.name < other.name ? -1 : 1)), waits: [...waits] };
}

const OUTCOMES = { "holder-changed": "another lease holds the lock by now", "not-held": "released by now" };

/** The dialog; `owner` is what is proposed. */
export function Bulk({ owner, close }) {
  const given = useSignal(owner);
  const reason = useSignal("");
  const grace = useSignal(GRACE);
  const busy = useSignal(null);
  const trouble = useSignal(null);
  /** `{owner, leases, waits}` of the dry run, and by its key what became of each lease. */
  const hits = useSignal(null);
  const outcomes = useSignal(null);
  const field = useRef(null);
  const why = useRef(null);
  const stop = useRef(new AbortController());
  /** What was sent is answered, and no more is sent. */
  const halted = useRef(false);
  useLayoutEffect(() => {
    field.current.select();
    return () => stop.current.abort();
  }, []);
  useLayoutEffect(() => why.current?.focus(), [hits.value !== null]);

  const find = async () => {
    if (!given.value.trim()) return field.current.focus();
    busy.value = "Looking…";
    trouble.value = null;
    try {
      hits.value = await hitsOf(given.value.trim(), stop.current.signal);
    } catch (problem) {
      if (stop.current.signal.aborted) return;
      if (!(problem instanceof Problem)) throw problem;
      trouble.value = problem;
    }
    busy.value = null;
  };
  // What may not be seen any more goes at once.
  const seen = hits.value && { ...hits.value, leases: hits.value.leases.filter(({ name }) => may("view", name)), waits: hits.value.waits.filter((name) => may("view", name)) };
  const meant = seen?.leases.filter((lease) => lease.may).slice(0, MOST_BROKEN) ?? [];
  const end = async () => {
    if (!reason.value.trim()) return why.current.focus();
    const left = [...meant];
    outcomes.value = new Map();
    halted.current = false;
    const one = async ({ name, fence }) => {
      const body = { reason: reason.value.trim(), fencing_token: fence, ...(grace.value > 0 && { grace_ms: grace.value }) };
      try {
        await ask(lockPath(name, "break"), { method: "POST", body, signal: stop.current.signal });
        return grace.value > 0 ? "asked" : "broken";
      } catch (problem) {
        if (stop.current.signal.aborted) return "not sent";
        if (!(problem instanceof Problem)) throw problem;
        if (problem.status === 429 && !halted.current) {
          await new Promise((resolve) => setTimeout(resolve, problem.extra.retry_after_ms ?? 1_000));
          return halted.current || stop.current.signal.aborted ? "not sent" : one({ name, fence });
        }
        return OUTCOMES[problem.code] ?? (problem.isUnknown ? "no answer: look at the lock" : `failed: ${problem.title}`);
      }
    };
    const work = async () => {
      for (let lease = left.shift(); lease && !stop.current.signal.aborted; lease = left.shift()) {
        const outcome = halted.current ? "not sent" : await one(lease);
        outcomes.value = new Map(outcomes.value).set(keyOf(lease), outcome);
      }
    };
    busy.value = grace.value > 0 ? "Asking…" : "Breaking…";
    await Promise.all(Array.from({ length: ABREAST }, work));
    busy.value = null;
  };
  const submit = (event) => {
    event.preventDefault();
    if (busy.value) return;
    if (!hits.value) find();
    else if (!outcomes.value && meant.length > 0) end();
  };
  // In the midst of it the first word only stops it: what became of each lease would not be known.
  const leave = () => (outcomes.value && busy.value && !halted.current ? (halted.current = true) : close());
  const isOver = outcomes.value && !busy.value;
  const leases = plural(meant.length, "lease", "leases");
  return html`<${Dialog} title="Free what an owner holds" close=${leave} wide>
    <form onSubmit=${submit} class="bulk">
      ${!hits.value && html`<${Line} id="bulk-owner" label="Owner, exactly as the locks show it" required maxlength=${LONGEST_OWNER} value=${given} field=${field} placeholder="ci-runner-8" />`}
      ${seen && html`<${Found} ...${seen} outcomes=${outcomes.value} />`}
      ${meant.length > 0 && !outcomes.value && html`<${Reason} reason=${reason} field=${why} /><${Way} grace=${grace} />${meant.some(({ reserved }) => reserved) && html`<p class="remark">${RESERVED}</p>`}`}
      ${outcomes.value && html`<p class="remark" role="status">${count(outcomes.value.size)} of ${leases}: ${summary(outcomes.value)}.</p>`}
      <${Trouble} problem=${trouble.value} />
      <footer>
        <button type="button" class="quiet" onClick=${leave}>${isOver ? "Close" : outcomes.value ? "Stop" : "Cancel"}</button>
        ${hits.value && !outcomes.value && html`<button type="button" key="back" onClick=${() => (hits.value = null)}>Another owner</button>`}
        ${!hits.value && html`<button type="submit" key="find" class="main" disabled=${busy.value}>${busy.value ?? "Show what that hits"}</button>`}
        ${meant.length > 0 && !isOver && html`<button type="submit" key="end" class="danger full" disabled=${busy.value}>${busy.value ?? (grace.value > 0 ? `Request release of ${leases}` : `Break ${leases} now`)}</button>`}
      </footer>
    </form>
  <//>`;
}

const keyOf = ({ name, fence }) => `${name} ${fence}`;

/** How many leases had which outcome. */
function summary(outcomes) {
  const many = new Map();
  for (const outcome of outcomes.values()) many.set(outcome, (many.get(outcome) ?? 0) + 1);
  return [...many].map(([outcome, number]) => `${count(number)} ${outcome}`).join(", ") || "none yet";
}

/** What the dry run has found, and what became of it. */
function Found({ owner, leases, waits, outcomes }) {
  const waiting = waits.length > 0 && html`<p class="remark"><span>Its requests also wait, and go on waiting, for ${waits.map((name, at) => html`${at > 0 && ", "}<a href=${lockHref(name)} target="_blank"><${Foreign} value=${name} /></a>`)}.</span></p>`;
  if (leases.length === 0) return html`<p class="remark"><${Foreign} value=${owner} whole /> holds no lock that your key may see. An owner is compared exactly, and of a lock with more than 100 holders with the first 100.</p>${waiting}`;
  return html`<p><strong><${Foreign} value=${owner} whole /></strong> holds ${plural(leases.length, "lease", "leases")}${leases.length > MOST_BROKEN && `, and more: ${count(MOST_BROKEN)} are broken at once`}. ${!outcomes && "Nothing has been sent yet."}</p>
    <ul class="hits" tabindex="0" aria-label="Leases">
      ${leases.map(
        (lease) => html`<li key=${keyOf(lease)}>
          <a href=${lockHref(lease.name)} target="_blank"><${Foreign} value=${lease.name} /></a>
          <span class="none">${outcomes?.get(keyOf(lease)) ?? (!lease.may ? "your key may not break it" : html`${lease.reserved ? "reserved" : "held"} <${Age} since=${lease.acquiredAt} />`)}</span>
        </li>`,
      )}
    </ul>${waiting}`;
}
