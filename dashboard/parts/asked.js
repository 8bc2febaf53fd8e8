// That a holder was asked to release its lock.

import { html } from "../view.js";
import { now, tick } from "../model/clock.js";
import { duration } from "../model/format.js";
import { Foreign } from "./text.js";

/** Until when (`by`), by whom and why. */
export function Asked({ request, by }) {
  tick.value;
  const left = Math.max(0, by - now());
  return html`To be released within ${duration(left)}: requested by${" "}
    <${Foreign} value=${request.by} none="somebody" />, <${Foreign} value=${request.reason} />`;
}
