// The line for a terminal that does the same, ready to copy.

import { html } from "../../view.js";
import { isOwn, may } from "../../model/session.js";
import { curl } from "../../model/terminal.js";
import { Copy } from "../../parts/copy.js";
import { GRACE } from "../../parts/way.js";
import { mayOrder, orderOf } from "./order.js";
import { mayReserve, proposed, stamp } from "./reserve.js";

/** A line for each thing that one may do with the lock. */
export function Curl({ name, lock }) {
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
  const lines = [
    ["inspect it", permits("view"), curl([], name)],
    ["acquire it", permits("acquire"), curl(["-X POST"], name)],
    ["hold it until Ctrl-C", permits("acquire"), curl(["-N -X POST"], name, "hold")],
    ["reserve it", mayReserve(name), curl([`--json '${reserve}'`], name)],
    order !== null && ["set its order", mayOrder(name), curl([`-X PUT --json '${setting}'`], name, "granted-order")],
    fence && ["check its fencing token", permits("check"), curl([`-i -H "Fencing-Token: ${fence}"`], name, "check")],
    lock.holder && [breaks, permits("break") || isMine, curl([`--json '${body}'`], name, "break")],
  ];
  const shown = lines.filter((line) => line && line[1]);
  return html`<section class="panel curl" aria-labelledby="curl">
    <h2 id="curl">From a terminal</h2>
    <ul>
      ${shown.map(
        ([what, , line]) => html`<li key=${what}>
          <span class="what">${what}</span>
          <code>${line}</code>
          <${Copy} text=${line} what="the line to ${what}" />
        </li>`,
      )}
    </ul>
  </section>`;
}
