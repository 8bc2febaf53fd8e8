// Who holds the lock, for how long, and what it says of itself.

import { html } from "../../view.js";
import { now, tick } from "../../model/clock.js";
import { duration } from "../../model/format.js";
import { Copy } from "../../parts/copy.js";
import { Foreign } from "../../parts/text.js";
import { Age, Moment, TimeLeft } from "../../parts/times.js";
import { Value } from "../../parts/value.js";

/** The holder, or that there is none. */
export function Holder({ lock }) {
  const { holder, shown } = lock;
  if (holder === null) {
    return html`<section class="panel" aria-labelledby="holder">
      <h2 id="holder">Holder</h2>
      <p class="nothing">
        ${lock.waiter_count > 0 ? "The lock is just passing to the first who waits." : "Nobody holds the lock."}
      </p>
    </section>`;
  }
  const metadata = Object.entries(holder.metadata);
  return html`<section class="panel holder" aria-labelledby="holder">
    <h2 id="holder">Holder</h2>
    <dl class="facts">
      <div class="wide"><dt>Owner</dt><dd class="who"><${Foreign} value=${holder.owner} none=${holder.foreign ? "a foreign client" : "not said"} whole /></dd></div>
      <div class="wide"><dt>Time left</dt><dd><${TimeLeft} lock=${shown} /></dd></div>
      <div><dt>Held for</dt><dd><${Age} since=${shown.acquiredAt} /></dd></div>
      <div><dt>Held since</dt><dd>${shown.acquiredAt === null ? "–" : html`<${Moment} at=${shown.acquiredAt} />`}</dd></div>
      <div><dt>TTL</dt><dd>${duration(holder.ttl_ms)}</dd></div>
      <div><dt>Hold limit</dt><dd><${Limit} at=${shown.holdEndsAt} /></dd></div>
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
    ${metadata.length > 0 &&
    html`<h3>Metadata</h3>
      <dl class="metadata">
        ${metadata.map(
          ([key, value]) => html`<div key=${key}><dt><${Foreign} value=${key} /></dt><dd><${Value} value=${value} /></dd></div>`,
        )}
      </dl>`}
  </section>`;
}

function Limit({ at }) {
  tick.value;
  return at === null ? "none" : html`in ${duration(at - now())}`;
}
