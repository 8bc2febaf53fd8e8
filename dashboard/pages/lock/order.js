// The order that the lock remembers: the line that shows it, and the dialog that sets or forgets it.

import { html, useLayoutEffect, useRef, useSignal } from "../../view.js";
import { ask, lockPath } from "../../model/api.js";
import { may } from "../../model/session.js";
import { isQuorum } from "../../model/store.js";
import { Dialog } from "../../parts/dialog.js";
import { Icon } from "../../parts/icon.js";
import { Line } from "../../parts/line.js";
import { Trouble } from "../../parts/notice.js";
import { Foreign } from "../../parts/text.js";
import { Moment } from "../../parts/times.js";
import { LONGEST_REASON } from "./break.js";
import { useSending } from "./sending.js";

const NO_NUMBER = `Enter a whole number from 0 to ${Number.MAX_SAFE_INTEGER}.`;
const MEANING =
  "Leases and waiters stay: a waiter is compared with the new order when it is granted the lock. To deploy older work once, leave the order and acquire the lock with a rollback.";
const UNKNOWN = "The order may be set. Asking again is safe: the order of a later grant is not replaced.";

/** Whether the user may set the order of the lock. A quorum remembers no orders. */
export const mayOrder = (name) => may("order", name) && !isQuorum.value;

/** The order that the lock remembers, or null. A gateway leaves the field out if there is none. */
export const orderOf = (lock) => lock.granted_order ?? null;

/** The sentence about the order that the lock remembers, if it remembers one. */
export function NeverBelow({ lock }) {
  return orderOf(lock) !== null && html`<p class="remark never-below"><${Icon} name="order-set" /> Never below <${Remembered} lock=${lock} /></p>`;
}

/** The order with the grant that it is from. An order that was set is from no grant. */
function Remembered({ lock: { granted_order: order, order_granted: grant } }) {
  if (!grant) return html`<strong>${order}</strong>`;
  const { at, owner, by } = grant;
  const key = by && html` by the key <${Foreign} value=${by} whole />`;
  return html`<strong>${order}</strong> (granted <${Moment} at=${at} />${owner !== null && html` to <${Foreign} value=${owner} whole />`}${key})`;
}

/** The dialog. */
export function SetOrder({ name, lock, close, done }) {
  const current = orderOf(lock);
  // The order that the user has seen: it is replaced only if the lock still remembers it.
  const seen = useSignal(current);
  const number = useSignal(String(current ?? ""));
  const reason = useSignal("");
  const forgets = useSignal(false);
  const wrong = useSignal({});
  const fields = { number: useRef(null), reason: useRef(null) };
  const request = (body) => ask(lockPath(name, "granted-order"), { method: "PUT", body });
  const { busy, trouble, send } = useSending(request, { close, done });
  const changed = current !== seen.value;
  useLayoutEffect(() => fields.number.current?.select(), [seen.value]);

  const submit = async (event) => {
    event.preventDefault();
    if (changed || busy.value) return;
    const [text, why] = [number.value.trim(), reason.value.trim()];
    const order = forgets.value ? null : Number(text);
    const isNumber = forgets.value || (/^\d+$/.test(text) && Number.isSafeInteger(order));
    wrong.value = {
      ...(isNumber ? order === current && { number: "The lock remembers this order already." } : { number: NO_NUMBER }),
      ...(!why && { reason: "Enter a reason." }),
    };
    const [first] = Object.keys(wrong.value);
    if (first) return fields[first].current.focus();
    await send({ order, if_order: seen.value, reason: why }, forgets.value ? "The lock has forgotten its order." : `The lock is granted for ${order} and higher orders.`);
  };
  const again = () => {
    trouble.value = null;
    seen.value = current;
    number.value = String(current ?? "");
    forgets.value = false;
  };
  return html`<${Dialog} title="Set the order" close=${close}>
    <form onSubmit=${submit} class="order" noValidate>
      <dl class="facts">
        <div class="wide"><dt>Lock</dt><dd class="mono"><${Foreign} value=${name} whole /></dd></div>
        <div class="wide"><dt>Never below</dt><dd>${current === null ? html`<span class="none">the lock remembers no order</span>` : html`<${Remembered} lock=${lock} />`}</dd></div>
      </dl>
      ${changed
        ? html`<div class="sure" role="alert"><${Icon} name="warning" /><p>${current === null ? "The lock has forgotten its order by now." : `By now the lock remembers the order ${current}.`}</p></div>`
        : html`<${Line} id="order" label="Order" inputmode="numeric" required disabled=${forgets.value} value=${number} field=${fields.number} wrong=${wrong.value.number} readonly=${busy.value} />
            ${current !== null &&
            html`<label class="check">
              <input type="checkbox" checked=${forgets.value} disabled=${busy.value} onChange=${(event) => (forgets.value = event.target.checked)} />
              Forget the order: the next grant with an order sets it
            </label>`}
            <${Line} id="reason" label="Reason (it is recorded)" required maxlength=${LONGEST_REASON} placeholder="a script sent milliseconds" value=${reason} field=${fields.reason} wrong=${wrong.value.reason} readonly=${busy.value} />
            <p class="remark">${MEANING}</p>`}
      <${Trouble} problem=${trouble.value} />
      ${trouble.value?.isUnknown && html`<p class="remark">${UNKNOWN}</p>`}
      <footer>
        <button type="button" class="quiet" onClick=${close}>Cancel</button>
        ${changed
          ? html`<button type="button" key="again" onClick=${again}>Decide again</button>`
          : html`<button type="submit" class="main" key="set" disabled=${busy.value}>${forgets.value ? (busy.value ? "Forgetting…" : "Forget") : busy.value ? "Setting…" : "Set"}</button>`}
      </footer>
    </form>
  <//>`;
}
