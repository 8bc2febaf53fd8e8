// The dialog that ends a rest or a reservation of the lock. Nobody works under a rest, and a reservation is ended by the
// person who made it, so the dialog asks only once.

import { html, useLayoutEffect, useRef, useSignal } from "../../view.js";
import { Dialog } from "../../parts/dialog.js";
import { Icon } from "../../parts/icon.js";
import { Trouble } from "../../parts/notice.js";
import { Foreign } from "../../parts/text.js";
import { TimeLeft } from "../../parts/times.js";
import { Next, Reason } from "./break.js";
import { breakLock, useSending } from "./sending.js";

/** What can be ended: what the dialog says, and where in the lock it is found by its fencing token, with its time. */
const KINDS = {
  rest: {
    title: "End the rest",
    what: "The lease was released already, so nobody loses it. The lock or the slot is granted again before the minimum hold of the lease is over.",
    said: "The rest is over.",
    over: "The rest is over by now: there is nothing to end.",
    unknown: "The rest may be over. Asking again is safe: no holder can be hit.",
    why: "",
    find: (lock, fence) => lock.rests.find((rest) => rest.fence === fence),
    shown: (rest) => ({ ...rest, rests: true, ended: null }),
  },
  reservation: {
    title: "End the reservation",
    what: "The lease ends at once. The history records its end as a release.",
    said: "The reservation is over.",
    over: "The reservation is over by now: there is nothing to end.",
    unknown: "The reservation may be over. Asking again is safe: no other holder can be hit.",
    why: "no longer needed",
    find: (lock, fence) => lock.holders.find((holder) => holder.fencing_token === fence && holder.reservation),
    shown: (holder) => holder.shown,
  },
};

/** The dialog: `kind` is one of `KINDS`. */
export function End({ name, lock, kind, fence, close, done }) {
  const { title, what, said, over, unknown, why, find, shown } = KINDS[kind];
  const reason = useSignal(why);
  const { busy, trouble, send } = useSending(breakLock(name), { close, done });
  const field = useRef(null);
  const found = find(lock, fence);
  useLayoutEffect(() => field.current?.select(), []);
  const submit = async (event) => {
    event.preventDefault();
    if (busy.value) return;
    if (!reason.value.trim()) return field.current.focus();
    await send({ reason: reason.value.trim(), fencing_token: fence }, said);
  };
  return html`<${Dialog} title=${title} close=${close}>
    <form onSubmit=${submit} class="break">
      <dl class="facts">
        <div class="wide"><dt>Lock</dt><dd class="mono"><${Foreign} value=${name} whole /></dd></div>
        ${found && html`<div><dt>Time left</dt><dd><${TimeLeft} lock=${shown(found)} /></dd></div>`}
        <div><dt>Fencing token</dt><dd class="mono">${fence}</dd></div>
        <div class="wide"><dt>Goes to</dt><dd><${Next} lock=${lock} /></dd></div>
      </dl>
      ${found
        ? html`<${Reason} ...${{ reason, field }} /><p class="remark">${what}</p>`
        : html`<div class="sure" role="alert"><${Icon} name="done" /><p>${over}</p></div>`}
      <${Trouble} problem=${trouble.value} />
      ${trouble.value?.isUnknown && html`<p class="remark">${unknown}</p>`}
      <footer>
        <button type="button" class="quiet" onClick=${close}>${found ? "Cancel" : "Close"}</button>
        ${found && html`<button type="submit" class="danger" disabled=${busy.value}>${busy.value ? "Ending…" : title}</button>`}
      </footer>
    </form>
  <//>`;
}
