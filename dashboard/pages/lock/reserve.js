// The dialog that reserves the lock until a time.

import { html, useLayoutEffect, useRef, useSignal } from "../../view.js";
import { now, tick } from "../../model/clock.js";
import { appointment, duration, ownZone, plural } from "../../model/format.js";
import { LONGEST_OWNER } from "../../model/name.js";
import { notify } from "../../model/notices.js";
import { freshKey, proposed, reserve, stamp } from "../../model/reservation.js";
import { session } from "../../model/session.js";
import { Dialog } from "../../parts/dialog.js";
import { ownerOf } from "../../parts/holders.js";
import { Line } from "../../parts/line.js";
import { Trouble } from "../../parts/notice.js";
import { Reserved } from "../../parts/reserved.js";
import { Foreign } from "../../parts/text.js";
import { TimeLeft } from "../../parts/times.js";
import { LONGEST_REASON } from "./break.js";
import { useSending } from "./sending.js";

const HOUR = 3_600_000;

/** A time as the browser's field writes it: the clock of the viewer's zone, without the zone. */
const local = (date) => new Date(date - date.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);

/** The name of the viewer's zone at that time. */
function zone(date) {
  const short = ownZone(date);
  const { timeZone } = Intl.DateTimeFormat().resolvedOptions();
  return short === timeZone ? short : `${short} (${timeZone})`;
}

/** The ends that are wanted most, `[words, time]`, in the zone of the browser. */
function picks() {
  const evening = (days) => {
    const day = new Date();
    day.setDate(day.getDate() + days);
    return new Date(day.setHours(18, 0, 0, 0));
  };
  const isOver = evening(0) <= Date.now();
  const friday = (5 - new Date().getDay() + 7) % 7;
  const first = isOver ? 1 : 0;
  const found = [["1 hour", new Date(Date.now() + HOUR)], [isOver ? "Tomorrow 18:00" : "Today 18:00", evening(first)]];
  return friday === first ? found : [...found, ["Friday 18:00", evening(friday < first ? 7 : friday)]];
}

/** The errors of the gateway by field of the dialog; null if one of them belongs to no field. */
function placed(problem) {
  const errors = problem?.extra.errors ?? [];
  const fields = errors.map(({ field, reason }) => [field.replace("reserve.", ""), reason]);
  const has = fields.length > 0 && fields.every(([field]) => field in NAMED);
  return has ? Object.fromEntries(fields.map(([field, reason]) => [field, html`${NAMED[field]} <${Foreign} value=${reason} whole />`])) : null;
}

/** The reasons of the gateway are read behind the name of the field. */
const NAMED = { until: "The time", reason: "The reason", owner: "The owner" };

/** The dialog. `lock` is null if the lock may not be seen. */
export function Reserve({ name, lock, close, done }) {
  const until = useSignal(local(proposed()));
  const given = { reason: useSignal(""), owner: useSignal("") };
  const waits = useSignal(false);
  const wrong = useSignal({});
  const since = useRef(null);
  // Under the same key the gateway answers a repeated request with the same lease.
  const attempt = useRef({ text: null, key: null });
  const stop = useRef(null);
  const button = useRef(null);
  const fields = { until: useRef(null), reason: useRef(null), owner: useRef(null) };
  const request = (body) => {
    stop.current = new AbortController();
    since.current = now();
    return reserve(name, body, { key: attempt.current.key, waits: waits.value, stop: stop.current.signal });
  };
  const reserved = async (body) => {
    const isReserved = await request(body);
    if (isReserved && waits.value) notify(name, "is yours");
    return isReserved;
  };
  const { busy, trouble, send } = useSending(reserved, { close, done });
  const focus = (errors) => fields[Object.keys(fields).find((field) => errors[field])]?.current?.focus();
  useLayoutEffect(() => {
    fields.until.current.focus();
    // A dialog that is closed waits no longer.
    return () => stop.current?.abort();
  }, []);
  useLayoutEffect(() => {
    // The button was disabled, and a disabled button loses the focus.
    if (!busy.value && document.activeElement === document.body) button.current.focus();
  }, [busy.value]);

  const submit = async (event) => {
    event.preventDefault();
    if (busy.value) return;
    const end = new Date(until.value);
    const reason = given.reason.value.trim();
    const owner = given.owner.value.trim();
    const errors = {
      ...(Number.isNaN(end.getTime()) ? { until: "Enter a date and a time." } : end <= Date.now() && { until: "This time is over." }),
      ...(!reason && { reason: "Enter a reason." }),
    };
    wrong.value = errors;
    if (Object.keys(errors).length > 0) return focus(errors);
    const body = { reserve: { until: stamp(end), reason }, ...(owner && { owner }) };
    const text = JSON.stringify(body);
    if (!trouble.value?.isUnknown || attempt.current.text !== text) attempt.current = { text, key: freshKey() };
    await send(body, `Reserved until ${appointment(end)}.`);
    wrong.value = placed(trouble.value) ?? {};
    focus(wrong.value);
  };
  const isWaiting = busy.value && waits.value;
  const fixed = { readonly: busy.value };
  return html`<${Dialog} title="Reserve the lock" close=${close}>
    <form onSubmit=${submit} class="reserve" noValidate>
      <dl class="facts">
        <div class="wide"><dt>Lock</dt><dd class="mono"><${Foreign} value=${name} whole /></dd></div>
        <${Held} lock=${lock} />
      </dl>
      <${Line} id="until" label="Until" type="datetime-local" required min=${local(new Date())} value=${until} field=${fields.until} hint=${html`<${Meant} at=${until.value} />`} wrong=${wrong.value.until} ...${fixed} />
      <div class="picks" role="group" aria-label="Quick picks">
        ${picks().map(([words, time]) => html`<button type="button" class="chip" key=${words} disabled=${busy.value} aria-pressed=${until.value === local(time)} onClick=${() => (until.value = local(time))}>${words}</button>`)}
      </div>
      <${Line} id="reason" label="Reason (other callers can read it)" required maxlength=${LONGEST_REASON} placeholder="demo for the customer" value=${given.reason} field=${fields.reason} wrong=${wrong.value.reason} ...${fixed} />
      ${!session.value.authentication &&
      html`<${Line} id="owner" label="Your name (optional)" maxlength=${LONGEST_OWNER} placeholder="anna" value=${given.owner} field=${fields.owner} wrong=${wrong.value.owner} ...${fixed} />`}
      <label class="check">
        <input type="checkbox" checked=${waits.value} disabled=${busy.value} onChange=${(event) => (waits.value = event.target.checked)} />
        Wait in the queue if the lock is held
      </label>
      ${isWaiting && html`<${Waiting} since=${since.current} />`}
      ${!placed(trouble.value) && html`<${Trouble} problem=${trouble.value} />`}
      ${trouble.value?.isUnknown && html`<p class="remark">The lock may be reserved. Asking again is safe: the same request gets the same reservation.</p>`}
      <footer>
        <button type="button" class="quiet" onClick=${close}>${isWaiting ? "Give up" : "Cancel"}</button>
        <button type="submit" class="main" ref=${button} disabled=${busy.value}>${isWaiting ? "Waiting…" : busy.value ? "Reserving…" : "Reserve"}</button>
      </footer>
    </form>
  <//>`;
}

/** The time that was entered, with its zone and how far away it is. */
function Meant({ at }) {
  tick.value;
  const date = new Date(at);
  if (Number.isNaN(date.getTime())) return `In the time zone ${zone(new Date())}`;
  const left = date - Date.now();
  return `${appointment(date, true)} ${zone(date)}${left > 0 ? `, in ${duration(left)}` : ""}`;
}

/** Who holds the lock now, if that may be seen. */
function Held({ lock }) {
  if (!lock) return null;
  const { holder, shown, holder_count: count, waiter_count: waiters } = lock;
  if (holder?.reservation) {
    return html`<div class="wide"><dt>Now</dt><dd><${Reserved} reservation=${holder.reservation} expiresAt=${shown.expiresAt} /></dd></div>
      <${Before} waiters=${waiters} />`;
  }
  if (!shown) return html`<div class="wide"><dt>Now</dt><dd>free</dd></div>`;
  const who = holder === null
    ? "nobody: the lock rests"
    : count > 1 ? plural(count, "holder", "holders") : html`<${Foreign} value=${ownerOf(holder)} none=${holder.foreign ? "a foreign client" : "owner not said"} whole />`;
  return html`<div><dt>Held by</dt><dd>${who}</dd></div>
    <div><dt>Time left</dt><dd><${TimeLeft} lock=${shown} /></dd></div>
    <${Before} waiters=${waiters} />`;
}

const Before = ({ waiters }) =>
  waiters > 0 && html`<div class="wide"><dt>Queue</dt><dd>${plural(waiters, "waiter is", "waiters are")} served before</dd></div>`;

function Waiting({ since }) {
  tick.value;
  return html`<p class="remark"><span class="out-of-sight" role="status">Waiting for the lock</span>
    <span class="spinner" aria-hidden="true"></span>Waiting for ${duration(now() - since)}. If you close this dialog, you leave the queue.</p>`;
}
