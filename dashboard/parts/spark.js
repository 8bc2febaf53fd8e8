// A small line: how many have waited for a lock over the last minutes.

import { html } from "../view.js";
import { count, duration } from "../model/format.js";
import { historyVersion, KEPT, SPAN, waitersOf } from "../model/history.js";

const WIDTH = 48;
const HEIGHT = 16;
/** Half of the stroke, which is not cut at the edges. */
const EDGE = 1;

/** Takes its place also where there is nothing to draw, so that nothing moves when there is. */
export function Spark({ name }) {
  historyVersion.value;
  const past = waitersOf(name);
  if (!past) return html`<svg class="spark" viewBox="0 0 ${WIDTH} ${HEIGHT}" aria-hidden="true"></svg>`;
  const says = `Waiters over the last ${duration(SPAN)}: at least ${count(Math.min(...past))}, at most ${count(Math.max(...past))}, now ${count(past.at(-1))}`;
  return html`<svg class="spark" viewBox="0 0 ${WIDTH} ${HEIGHT}" role="img" aria-label=${says}>
    <title>${says}</title>
    <path d=${line(past)} />
  </svg>`;
}

/** From 0, with the last look at the right edge. */
function line(past) {
  const most = Math.max(1, ...past);
  const step = (WIDTH - 2 * EDGE) / (KEPT - 1);
  const points = past.map((waiters, index) => {
    const x = WIDTH - EDGE - (past.length - 1 - index) * step;
    const y = HEIGHT - EDGE - (waiters / most) * (HEIGHT - 2 * EDGE);
    return `${x.toFixed(1)} ${y.toFixed(1)}`;
  });
  return `M${points.join("L")}`;
}
