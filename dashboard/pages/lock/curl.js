// The line for a terminal that does the same, ready to copy.

import { html, signal } from "../../view.js";
import { keep, kept } from "../../model/kept.js";
import { mayReserve, proposed, stamp } from "../../model/reservation.js";
import { isOwn, may, session } from "../../model/session.js";
import { curl, latchgate, located } from "../../model/terminal.js";
import { Copy } from "../../parts/copy.js";
import { GRACE } from "../../parts/way.js";
import { mayOrder, orderOf } from "./order.js";

const PROGRAMS = ["curl", "latchgate"];
const chosen = signal(kept("terminal") ?? PROGRAMS[0]);

/** A line for each thing that one may do with the lock. */
export function Curl({ name, lock }) {
  const isCurl = chosen.value !== "latchgate";
  const { fencing_token: fence, foreign_mark: mark } = lock.holder ?? {};
  const one = { ...(fence && { fencing_token: fence }), ...(mark && { foreign_mark: mark }) };
  const reservation = lock.holder?.reservation;
  // A client that uses no gateway cannot be asked. A request is told with a renewal, and no client renews a reservation.
  const first = fence && !reservation && { grace_ms: GRACE };
  const body = JSON.stringify({ reason: "why", ...(lock.holder_count > 1 ? { all: true } : one), ...first });
  const isMine = reservation && isOwn(reservation);
  const breaks = isMine ? "end the reservation" : `${first ? "ask first, then " : ""}break ${lock.holder_count > 1 ? "all" : "it"}`;
  const reserve = JSON.stringify({ reserve: { until: stamp(proposed()), reason: "why" } });
  const order = orderOf(lock);
  const setting = JSON.stringify({ order, if_order: order, reason: "why" });
  const permits = (permission) => may(permission, name);
  const many = lock.holder_count > 1;
  const which = many ? "--all" : fence ? `--fencing-token ${fence}` : mark ? `--foreign-mark ${mark}` : "--any";
  const end = isMine ? latchgate("unreserve", name) : latchgate("break", name, `--reason "why" ${which}${first ? ` --grace ${GRACE / 1000}s` : ""}`);
  const lines = [
    ["inspect it", permits("view"), latchgate("inspect", name), curl([], name)],
    ["show its history", permits("view"), latchgate("history", name), curl([], name, "history")],
    ["acquire it", permits("acquire"), latchgate("acquire", name), curl(["-X POST"], name)],
    ["hold it until Ctrl-C", permits("acquire"), latchgate("run", name, "-- sleep infinity"), curl(["-N -X POST"], name, "hold")],
    ["reserve it", mayReserve(name), latchgate("reserve", name, `--until 18:00 --reason "why"`), curl([`--json '${reserve}'`], name)],
    order !== null && ["set its order", mayOrder(name), latchgate("order", name, `--set ${order} --reason "why"`), curl([`-X PUT --json '${setting}'`], name, "granted-order")],
    fence && ["check its fencing token", permits("check"), latchgate("check", name, `--fence ${fence}`), curl([`-i -H "Fencing-Token: ${fence}"`], name, "check")],
    lock.holder && [breaks, permits("break") || isMine, end, curl([`--json '${body}'`], name, "break")],
  ];
  // In a name that begins so, a shell command behind it would be taken for a part of the line.
  const shown = lines.filter((line) => line && line[1]).filter(([what]) => isCurl || !name.startsWith("-") || what !== "hold it until Ctrl-C");
  const choose = (program) => () => {
    chosen.value = program;
    keep("terminal", program);
  };
  const rows = shown.map(([what, , cli, line]) => [what, isCurl ? line : cli]);
  return html`<section class="panel curl" aria-labelledby="curl">
    <h2 id="curl">From a terminal
      <span class="zoom" role="group" aria-label="Program">
        ${PROGRAMS.map((program) => html`<button type="button" class="bare mono" key=${program} aria-pressed=${chosen.value === program} onClick=${choose(program)}>${program}</button>`)}
      </span>
    </h2>
    <ul>
      ${(isCurl ? rows : [["say where the gateway is", located()], ...rows]).map(
        ([what, line]) => html`<li key=${what}>
          <span class="what">${what}</span>
          <code>${line.split(" ").map((word, at) => html`${at > 0 && " "}<span key=${at}>${word}</span>`)}</code>
          <${Copy} text=${line} what="the line to ${what}" />
        </li>`,
      )}
    </ul>
    ${!isCurl && session.value.authentication && html`<p class="note">The API key is read from <code>LATCHGATE_KEY</code>, or from the file that <code>LATCHGATE_KEY_FILE</code> names.</p>`}
  </section>`;
}
