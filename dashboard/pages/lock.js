// One lock: who holds it, who waits, what has happened, and what can be done.

import { html, useSignal } from "../view.js";
import { now, tick } from "../model/clock.js";
import { count, duration } from "../model/format.js";
import { isName, RULE } from "../model/name.js";
import { arm, armed, canNotify } from "../model/notices.js";
import { mayReserve } from "../model/reservation.js";
import { href, route } from "../model/route.js";
import { isOwn, may } from "../model/session.js";
import { isStale } from "../model/store.js";
import { asTimes, timesLonger, usualOf } from "../model/usual.js";
import { Copy } from "../parts/copy.js";
import { Icon } from "../parts/icon.js";
import { LockState, StateMark } from "../parts/lock_state.js";
import { Empty, Failed, Loading, Trouble } from "../parts/notice.js";
import { say } from "../parts/said.js";
import { Foreign } from "../parts/text.js";
import { Break } from "./lock/break.js";
import { Curl } from "./lock/curl.js";
import { End } from "./lock/end.js";
import { History, useHistory } from "./lock/history.js";
import { Holder } from "./lock/holder.js";
import { Lanes } from "./lock/lanes.js";
import { useLook } from "./lock/look.js";
import { mayOrder, NeverBelow, SetOrder } from "./lock/order.js";
import { Queue } from "./lock/queue.js";
import { Reserve } from "./lock/reserve.js";
import { Timeline } from "./lock/timeline.js";
import { Try } from "./lock/try.js";

/** The page of the lock that the address names. */
export function Lock() {
  const { name } = route.value;
  return isName(name) ? html`<${Page} key=${name} name=${name} />` : html`<${Impossible} name=${name} />`;
}

/** Nobody has to be asked. */
function Impossible({ name }) {
  return html`<div class="page lock-page">
    <p class="path"><a href=${href("locks")}><${Icon} name="back" />Locks</a></p>
    <div class="title"><h1 tabindex="-1" class="mono"><${Foreign} value=${name} whole /></h1></div>
    <${Empty} icon="search" title="No lock can be called that"><p>${RULE}</p><//>
  </div>`;
}

function Page({ name }) {
  const sees = may("view", name);
  const { state, lock, problem, again } = useLook(name, sees);
  const past = useHistory(name, sees && lock !== null);
  const usual = past.kept?.enabled ? usualOf(past.kept.entries) : null;
  const acquires = may("acquire", name);
  // What is to be broken: one holder, or all who share the lock.
  const breaking = useSignal(null);
  // The rest or the reservation to end, for the dialog: `{kind, fence}`.
  const ending = useSignal(null);
  const reserving = useSignal(false);
  const ordering = useSignal(false);
  const held = lock?.state === "held";
  const isShared = lock?.holder_count > 1;
  const isResting = lock?.state === "resting";
  const breaks = may("break", name);
  const reserves = mayReserve(name);
  const orders = lock && mayOrder(name);
  const isMine = held && lock.holder.reservation && isOwn(lock.holder.reservation);
  const take = breaks && ((holder) => (breaking.value = { holder }));
  const wake = breaks && ((fence) => (ending.value = { kind: "rest", fence }));
  return html`<div class="page lock-page">
    <p class="path"><a href=${href("locks")}><${Icon} name="back" />Locks</a></p>
    <div class="title">
      <h1 tabindex="-1" class="mono"><${Foreign} value=${name} whole /></h1>
      <${Copy} text=${name} what="the name" />
      ${lock && (held || isResting ? html`<${LockState} lock=${lock.shown} />` : html`<${StateMark} state="free" />`)}
      <div class="actions">
        ${lock && canNotify && html`<${Tell} name=${name} />`}
        ${reserves && html`<button type="button" onClick=${() => (reserving.value = true)}><${Icon} name="reserved" />Reserve…</button>`}
        ${orders && html`<button type="button" onClick=${() => (ordering.value = true)}><${Icon} name="order-set" />Order…</button>`}
        ${isMine &&
        html`<button type="button" onClick=${() => (ending.value = { kind: "reservation", fence: lock.holder.fencing_token })}><${Icon} name="released" />End reservation…</button>`}
        ${held &&
        breaks &&
        !isMine &&
        html`<button type="button" class="danger" onClick=${() => (breaking.value = { holder: isShared ? null : lock.holder })}><${Icon} name="broken" />${isShared ? "Break all…" : "Break…"}</button>`}
      </div>
    </div>
    ${!lock && !sees && acquires && html`<${Unseen} name=${name} />`}
    ${state === "failed" && !lock && (sees || !acquires) && html`<${Failed} problem=${problem} again=${again} />`}
    ${state === "loading" && !lock && sees && html`<${Loading} what="Looking at the lock…" />`}
    ${lock &&
    html`<${Trouble} problem=${problem} />
      <${NeverBelow} lock=${lock} />
      <div class="columns ${isStale() ? "stale" : ""}">
        <div class="main-column">
          ${lock.declared && html`<${Declared} declared=${lock.declared} />`}
          <${Longer} ...${{ lock, usual }} />
          <${Holder} ...${{ lock, take, wake }} />
          <${Queue} ...${{ lock, usual }} />
          <${Lanes} ...${{ lock, usual, kept: past.kept }} />
          <${History} ...${past} />
          <${Timeline} name=${name} />
        </div>
        <div class="side-column">
          ${acquires && html`<${Try} name=${name} />`}
          <${Curl} name=${name} lock=${lock} />
        </div>
      </div>`}
    ${breaking.value && lock && breaks && html`<${Break} ...${{ name, lock }} target=${breaking.value.holder} close=${() => (breaking.value = null)} done=${again} />`}
    ${ending.value && lock && (breaks || ending.value.kind === "reservation") && html`<${End} ...${{ name, lock, ...ending.value }} close=${() => (ending.value = null)} done=${again} />`}
    ${reserving.value && reserves && html`<${Reserve} ...${{ name, lock }} close=${() => (reserving.value = false)} done=${again} />`}
    ${ordering.value && orders && html`<${SetOrder} ...${{ name, lock }} close=${() => (ordering.value = false)} done=${again} />`}
  </div>`;
}

/** Has the browser tell of the lock, also while another window is looked at. */
function Tell({ name }) {
  const on = armed.value.has(name);
  const toggle = async () => {
    const told = await arm(name, !on);
    if (told) say("The browser tells you when the lock is free, yours or asked for, as long as this page is open.");
    else if (!on) say("The browser does not permit notices for this page.");
  };
  return html`<button type="button" aria-pressed=${on} title="Tell me when the lock is free, mine or asked for" onClick=${toggle}><${Icon} name="bell" />${on ? "Notices on" : "Tell me"}</button>`;
}

/** That somebody holds the lock longer than it is usually held, and how many times as long. */
function Longer({ lock: { holders }, usual }) {
  tick.value;
  const held = holders.filter(({ foreign, reservation, waiting }) => !foreign && !reservation && !waiting).map(({ shown }) => now() - shown.acquiredAt);
  const longest = Math.max(0, ...held);
  const times = timesLonger(longest, usual);
  return times !== null && html`<p class="sure longer"><${Icon} name="expired" /><span>
    Held <strong>${asTimes(times)} longer than usual</strong>: ${duration(longest)}, and the median of the last ${count(usual.leases)} leases is ${duration(usual.hold.median)}.
  </span></p>`;
}

/** The terms that the operator of the gateway has declared for this lock. */
function Declared({ declared: { mode, limit, min_hold_ms: least, max_ttl_ms: ttl, max_hold_ms: most, order, exclusive, description } }) {
  const terms = [
    limit ? `at most ${limit} holders` : mode,
    least && `a minimum hold of ${duration(least)}`,
    ttl && `a TTL of at most ${duration(ttl)}`,
    most && `held for at most ${duration(most)}`,
    order && "an order is required",
    exclusive && "nobody may hold it alone",
  ];
  return html`<p class="remark declared"><span>Declared: ${terms.filter(Boolean).join(", ") || "no terms"}.${description && html` <${Foreign} value=${description} whole />`}</span></p>`;
}

/** Who may acquire the lock and not see it can try that all the same. */
function Unseen({ name }) {
  return html`<p class="remark unseen"><span>
      You may acquire this lock, and not see it: holders, waiters, events and the history are shown with the permission <code>view</code>.
    </span></p>
    <div class="columns">
      <div class="main-column"><${Try} name=${name} open /></div>
      <div class="side-column"><${Curl} name=${name} lock=${{}} /></div>
    </div>`;
}
