// Who holds the lock, for how long, and what it says of itself.

import { html } from "../../view.js";
import { now, tick } from "../../model/clock.js";
import { count, duration, plural } from "../../model/format.js";
import { groupOf, locksVersion } from "../../model/locks.js";
import { lockHref } from "../../model/route.js";
import { Asked } from "../../parts/asked.js";
import { Copy } from "../../parts/copy.js";
import { ownerOf } from "../../parts/holders.js";
import { Icon } from "../../parts/icon.js";
import { Reserved } from "../../parts/reserved.js";
import { Foreign } from "../../parts/text.js";
import { Age, Moment, TimeLeft } from "../../parts/times.js";
import { Value } from "../../parts/value.js";
import { Rests } from "./rests.js";

const LOCK_RESTS = "Nobody holds the lock. It was released before its minimum hold was over, and nobody gets it until then.";
const SLOTS_REST = "Nobody holds the lock. A slot that was released before its minimum hold was over counts as held until then.";

/**
 * The holder, all who share the lock, or that there is none. `take` opens the dialog that breaks one of several, `wake`
 * the one that ends a rest.
 */
export function Holder({ lock, take, wake }) {
  const { holder, shown, rests } = lock;
  if (lock.holder_count > 1) return html`<${Sharers} ...${{ lock, take, wake }} />`;
  if (holder === null && rests.length > 0) {
    return html`<section class="panel holder" aria-labelledby="holder">
      <h2 id="holder">Holder</h2>
      <p>${rests.some(({ slot }) => slot !== null) ? SLOTS_REST : LOCK_RESTS}</p>
      <${Rests} ...${{ rests, wake }} />
    </section>`;
  }
  if (holder === null) {
    return html`<section class="panel" aria-labelledby="holder">
      <h2 id="holder">Holder</h2>
      <p class="nothing">
        ${lock.waiter_count > 0 ? "The lock is just passing to the first waiter." : "Nobody holds the lock."}
      </p>
    </section>`;
  }
  const metadata = Object.entries(holder.metadata);
  const { reservation } = holder;
  return html`<section class="panel holder" aria-labelledby="holder">
    <h2 id="holder">Holder</h2>
    ${reservation && html`<p class="reserved"><${Icon} name="reserved" /><span><${Reserved} reservation=${reservation} expiresAt=${shown.expiresAt} /></span></p>`}
    <dl class="facts">
      ${(holder.owner !== null || !reservation) &&
      html`<div class="wide"><dt>Owner</dt><dd class="who"><${Foreign} value=${holder.owner} none=${holder.foreign ? "a foreign client" : "not said"} whole /></dd></div>`}
      <div class="wide"><dt>Time left</dt><dd><${TimeLeft} lock=${shown} /></dd></div>
      <div><dt>Held for</dt><dd><${Age} since=${shown.acquiredAt} /></dd></div>
      <div><dt>Held since</dt><dd>${shown.acquiredAt === null ? "–" : html`<${Moment} at=${shown.acquiredAt} />`}</dd></div>
      ${!reservation &&
      html`<div><dt>TTL</dt><dd>${duration(holder.ttl_ms)}</dd></div>
        ${!holder.foreign && html`<div><dt>Last renewal</dt><dd><${Renewed} of=${shown} /></dd></div>`}
        <div><dt>Hold limit</dt><dd><${Limit} at=${shown.holdEndsAt} /></dd></div>`}
      ${holder.mode === "shared" && html`<div><dt>Mode</dt><dd>shared</dd></div>`}
      ${holder.slot !== null && html`<div><dt>Slot</dt><dd>${holder.slot}</dd></div>`}
      ${holder.order !== undefined && html`<${Order} of=${holder} />`}
      ${holder.waiting && html`<div class="wide"><dt>Waits for</dt><dd><${Awaited} lock=${holder.waits_for} at=${lock.sentAt} /></dd></div>`}
      ${holder.group && html`<div class="wide"><dt>${holder.waiting ? "Group, with" : "Acquired with"}</dt><dd><${Group} name=${lock.name} of=${holder} /></dd></div>`}
      <div class="wide">
        <dt>Fencing token</dt>
        <dd class="mono">
          ${holder.fencing_token ?? "–"}
          ${holder.fencing_token && html`<${Copy} text=${String(holder.fencing_token)} what="the fencing token" />`}
        </dd>
      </div>
    </dl>
    ${holder.foreign &&
    html`<p class="remark">Taken in the store itself by a client that does not use the gateway: no more is known of it.</p>`}
    ${holder.release_requested && html`<p class="remark"><${Asked} request=${holder.release_requested} by=${shown.releaseBy} /></p>`}
    ${metadata.length > 0 &&
    html`<h3>Metadata</h3>
      <dl class="metadata">
        ${metadata.map(
          ([key, value]) => html`<div key=${key}><dt><${Foreign} value=${key} /></dt><dd><${Value} value=${value} /></dd></div>`,
        )}
      </dl>`}
    <${Beside} ...${{ rests, wake }} />
  </section>`;
}

/** The order of the lease; of a rollback its reason too. */
function Order({ of: { order, rollback } }) {
  if (!rollback) return html`<div><dt>Order</dt><dd>${order}</dd></div>`;
  return html`<div class="wide"><dt>Order</dt><dd>${order}, a rollback: <${Foreign} value=${rollback} whole /></dd></div>`;
}

/** What rests beside those who hold the lock. */
function Beside({ rests, wake }) {
  return rests.length > 0 && html`<h3>Resting</h3><${Rests} ...${{ rests, wake }} />`;
}

/** An entry for each: what it says of itself stands below its owner. */
function Sharers({ lock, take, wake }) {
  const { name, holders, holder_count: all } = lock;
  return html`<section class="panel holder sharers" aria-labelledby="holder">
    <h2 id="holder">Holders <span class="number">${count(all)}</span></h2>
    <ol>
      ${holders.map(
        (one) => html`<li key=${one.fencing_token}>
          <div class="who">
            <span class="slot">${wayOf(one)}</span>${" "}
            <${Foreign} value=${one.owner} none="not said" whole />
          </div>
          ${take &&
          html`<button type="button" aria-label=${`Break the lease ${one.fencing_token}`} onClick=${() => take(one)}>Break…</button>`}
          <span class="out-of-sight">time left</span>
          <${TimeLeft} lock=${one.shown} />
          <p class="fact">fencing token <span class="mono">${one.fencing_token}</span></p>
          ${one.waiting && html`<p class="fact">waits for <${Awaited} lock=${one.waits_for} at=${lock.sentAt} /></p>`}
          ${one.group && html`<p class="fact">${one.waiting ? "in a group with" : "acquired with"} <${Group} name=${name} of=${one} /></p>`}
          ${one.release_requested && html`<p class="fact"><${Asked} request=${one.release_requested} by=${one.shown.releaseBy} /></p>`}
          ${Object.entries(one.metadata).map(
            ([key, value]) => html`<p class="fact" key=${key}><${Foreign} value=${key} />: <${Value} value=${value} /></p>`,
          )}
        </li>`,
      )}
    </ol>
    ${all > holders.length && html`<p class="note">and ${count(all - holders.length)} more, which end later</p>`}
    <${Beside} ...${{ rests: lock.rests, wake }} />
  </section>`;
}

/** The other locks that were acquired with this one, as far as they are known, and how each of them is shared. */
function Group({ name, of: { group, owner } }) {
  locksVersion.value;
  const others = groupOf(group, owner).filter((other) => other.name !== name);
  const rest = group.count - 1 - others.length;
  const links = others.map(
    (other, at) => html`${at > 0 && ", "}<a href=${lockHref(other.name)}><${Foreign} value=${other.name} /></a>${other.shared && html`${" "}<span class="none">(${wayOf(other)})</span>`}`,
  );
  return html`${links}${rest > 0 && `${others.length > 0 ? " and " : ""}${plural(rest, "other", "others")}`}`;
}

/** The lock that the job of a holder waits for, and who holds it. `at`: when the gateway was asked. */
export function Awaited({ lock, at }) {
  tick.value;
  const waited = lock && ` for ${duration(lock.since_ms + now() - at)}`;
  if (!lock?.name) return html`another lock${waited}`;
  const { name, holders, state, holder_count: count = holders.length } = lock;
  const [first] = holders;
  const who = first && html`<${Foreign} value=${ownerOf(first)} none=${first.foreign ? "a foreign client" : "owner not said"} />`;
  const how = first?.reservation ? html`<${Reserved} ...${first} />` : first ? html`held by ${who}` : state === "resting" ? "cooling down" : "free";
  return html`<a href=${lockHref(name)}><${Foreign} value=${name} /></a>${waited}: ${how}${count > 1 && ` and ${plural(count - 1, "other", "others")}`}`;
}

const wayOf = ({ slot }) => (slot === null ? "shared" : `slot ${slot}`);

function Limit({ at }) {
  tick.value;
  return at === null ? "none" : html`in ${duration(at - now())}`;
}

/** When the lease was renewed last: a renewal gives it its whole TTL again. */
function Renewed({ of: { acquiredAt, expiresAt, ttl } }) {
  tick.value;
  const at = expiresAt - ttl;
  return at - acquiredAt < 1_000 ? "none yet" : `${duration(now() - at)} ago`;
}
