// One lock: who holds it, who waits, what has happened, and what can be done.

import { html, useSignal } from "../view.js";
import { connection } from "../model/connection.js";
import { href, route } from "../model/route.js";
import { may } from "../model/session.js";
import { Copy } from "../parts/copy.js";
import { Icon } from "../parts/icon.js";
import { LockState, StateMark } from "../parts/lock_state.js";
import { Failed, Loading, Trouble } from "../parts/notice.js";
import { Foreign } from "../parts/text.js";
import { Break } from "./lock/break.js";
import { Curl } from "./lock/curl.js";
import { Holder } from "./lock/holder.js";
import { useLook } from "./lock/look.js";
import { Queue } from "./lock/queue.js";
import { Timeline } from "./lock/timeline.js";
import { Try } from "./lock/try.js";

/** The page of the lock that the address names. */
export function Lock() {
  const { name } = route.value;
  return html`<${Page} key=${name} name=${name} />`;
}

function Page({ name }) {
  const { state, lock, problem, again } = useLook(name);
  const breaking = useSignal(false);
  const held = lock?.state === "held";
  return html`<div class="page lock-page">
    <p class="path"><a href=${href("locks")}><${Icon} name="back" />Locks</a></p>
    <div class="title">
      <h1 tabindex="-1" class="mono"><${Foreign} value=${name} whole /></h1>
      <${Copy} text=${name} what="the name" />
      ${lock && (held ? html`<${LockState} lock=${lock.shown} />` : html`<${StateMark} state="free" />`)}
      <span class="space"></span>
      ${held &&
      may("break", name) &&
      html`<button type="button" class="danger" onClick=${() => (breaking.value = true)}><${Icon} name="broken" />Break…</button>`}
    </div>
    ${state === "failed" && !lock && html`<${Failed} problem=${problem} again=${again} />`}
    ${state === "loading" && !lock && html`<${Loading} what="Looking at the lock…" />`}
    ${lock &&
    html`<${Trouble} problem=${problem} />
      <div class="columns ${connection.value.state === "lost" ? "stale" : ""}">
        <div class="main-column">
          <${Holder} lock=${lock} />
          <${Queue} lock=${lock} />
          <${Timeline} name=${name} />
        </div>
        <div class="side-column">
          ${may("acquire", name) && html`<${Try} name=${name} />`}
          <${Curl} name=${name} lock=${lock} />
        </div>
      </div>`}
    ${breaking.value && html`<${Break} name=${name} lock=${lock} close=${() => (breaking.value = false)} done=${again} />`}
  </div>`;
}
