// A live chart of the last hour.

import { html, signal, useEffect, useLayoutEffect, useRef, useSignal } from "../view.js";
import { clock, NOTHING } from "../model/format.js";

const HEIGHT = 150;
const FONT = '11px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif';

/** What draws: larger than all the rest of the page, so it is brought when that is there. */
const library = signal(null);
let asked = false;
/** Whether it was asked for once more before it came. */
let again = false;
/** How often it did not come: what a browser could not bring once it does not bring by the same name again. */
let failures = 0;

async function bring() {
  again = asked;
  if (asked) return;
  asked = true;
  const path = new URL("vendor/uplot@1.6.32/uplot.js", document.baseURI);
  if (failures) path.hash = failures;
  // Without it the figures stand above an empty chart; whatever chart comes next tries again.
  const brought = await import(path).catch(() => (failures += 1));
  if (brought.default) {
    library.value = brought.default;
    return;
  }
  asked = false;
  if (again) bring();
}

/** Between the lines of a chart: with others there would be labels that are rounded. The least is the chart's own. */
const STEPS = [0.5, ...Array.from({ length: 15 }, (_, power) => [1, 2, 5].map((digit) => digit * 10 ** power)).flat()];

/** The first minute fills the chart; then it grows to its whole span. */
const LEAST = 60;

/**
 * `times` are milliseconds on the clock on the wall, `series` `{label, values, tone, dashed}`: the
 * second of two lines is dashed as well as of another colour. `step` is the least that `format` tells apart.
 */
export function Chart({ title, times, series, format, step, span, note }) {
  const box = useRef(null);
  const plot = useRef(null);
  const theme = useSignal(0);
  const at = useSignal(null);
  useEffect(() => {
    const anew = () => (theme.value += 1);
    addEventListener("latchgate-theme", anew);
    return () => removeEventListener("latchgate-theme", anew);
  }, []);
  const uPlot = library.value;
  useEffect(() => {
    // After what is there has been drawn.
    requestAnimationFrame(() => setTimeout(bring));
  }, []);
  useLayoutEffect(() => {
    if (!uPlot) return;
    const element = box.current;
    const made = new uPlot(options(element, series, format, step, span, (index) => (at.value = index)), [[], ...series.map(() => [])], element);
    plot.current = made;
    const sized = new ResizeObserver(() => made.setSize({ width: element.clientWidth, height: HEIGHT }));
    sized.observe(element);
    return () => {
      sized.disconnect();
      made.destroy();
    };
  }, [theme.value, series.length, uPlot]);
  useLayoutEffect(() => {
    plot.current?.setData([times.map((time) => time / 1000), ...series.map((line) => line.values)]);
  });
  const shown = at.value ?? times.length - 1;
  const value = (line) => format(line.values[shown]);
  const says = series.map((line) => `${line.label} ${value(line)}`).join(", ");
  return html`<figure class="chart panel">
    <figcaption>
      <h2>${title}</h2>
      <ul class="legend">
        ${series.map(
          (line) => html`<li key=${line.label}>
            <span class="key ${line.tone} ${line.dashed ? "dashed" : ""}" aria-hidden="true"></span>${line.label}
            <b>${times.length ? value(line) : NOTHING}</b>
          </li>`,
        )}
      </ul>
    </figcaption>
    <div class="plot" ref=${box} role="img" aria-label="${title} over the last hour; now: ${says}"></div>
    ${note && html`<p class="note">${note}</p>`}
    ${times.length < 2 && html`<p class="gathering">Gathering the first figures…</p>`}
  </figure>`;
}

/** Seconds between two times below a chart: with these there are always several. */
const TIMES = [5, 10, 15, 30, 60, 120, 300, 600, 1_200, 1_800];

/** A time below a chart, with its seconds unless all are whole minutes. */
function label(seconds, apart) {
  return clock(new Date(seconds * 1000)).slice(-8, apart % 60 === 0 ? -3 : undefined);
}

function window(first, last, span) {
  const until = last || Date.now() / 1000;
  return [until - Math.min(span, Math.max(LEAST, until - (first || until))), until];
}

function options(element, series, format, step, span, moved) {
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(`--${name}`).trim();
  const axis = {
    stroke: colour("muted"),
    font: FONT,
    grid: { stroke: colour("line"), width: 1 },
    ticks: { show: false },
  };
  return {
    width: Math.max(element.clientWidth, 100),
    height: HEIGHT,
    legend: { show: false },
    padding: [8, 22, 0, 0],
    cursor: { y: false, points: { size: 7 }, drag: { x: false, y: false } },
    scales: {
      x: { time: true, range: (_, first, last) => window(first, last, span / 1000) },
      // From 0, and never so close that nothing looks like something.
      y: { range: (_, __, most) => [0, Math.max(most ?? 0, 1) * 1.15] },
    },
    axes: [
      { ...axis, size: 24, space: 70, incrs: TIMES, values: (_, ticks, __, ___, apart) => ticks.map((tick) => label(tick, apart)) },
      { ...axis, size: 44, space: 32, incrs: STEPS.filter((one) => one >= step), values: (_, ticks) => ticks.map((tick) => format(tick)) },
    ],
    series: [
      {},
      ...series.map((line) => ({
        stroke: colour(line.tone),
        width: 1.5,
        dash: line.dashed ? [5, 4] : undefined,
        fill: line.dashed ? undefined : `${colour(line.tone)}1f`,
        points: { show: false },
        spanGaps: false,
      })),
    ],
    hooks: { setCursor: [(plot) => moved(plot.cursor.idx ?? null)] },
  };
}
