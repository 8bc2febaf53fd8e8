// A table of any length: only the rows in sight exist. Moved through with the keyboard or by scrolling.

import { html, useLayoutEffect, useRef, useSignal } from "../view.js";
import { Icon } from "./icon.js";
import { isNarrow } from "./width.js";

/** Rows beyond both edges, so that a quick scroll does not show emptiness. */
const BEYOND = 6;

/** Where each table was when it was left: back brings one back to it. */
const places = new Map();

/**
 * `columns` are `{id, title, sorts, mostFirst, cell(row)}`: a first press on the head of one with `mostFirst` sorts
 * downwards. `heights` are `[wide, narrow]` in pixels. `open(row)` is what Enter and a click do. `scrolled(top)` hears how
 * far down it is.
 */
export function Grid({ id, label, columns, rows, keyOf, heights, sort, onSort, open, scrolled, rowClass }) {
  const height = heights[isNarrow.value ? 1 : 0];
  const box = useRef(null);
  const head = useRef(null);
  const view = useSignal({ top: 0, height: 600 });
  const active = useSignal(null);

  useLayoutEffect(() => {
    const element = box.current;
    const measure = () => {
      view.value = { top: element.scrollTop, height: element.clientHeight };
      places.set(id, element.scrollTop);
      scrolled?.(element.scrollTop);
    };
    element.scrollTop = places.get(id) ?? 0;
    measure();
    element.addEventListener("scroll", measure, { passive: true });
    const sized = new ResizeObserver(measure);
    sized.observe(element);
    return () => {
      element.removeEventListener("scroll", measure);
      sized.disconnect();
    };
  }, [id]);
  useLayoutEffect(() => {
    const first = () => {
      box.current.focus();
      if (active.value === null && rows.length) active.value = keyOf(rows[0]);
    };
    box.current.addEventListener("grid-enter", first);
    return () => box.current?.removeEventListener("grid-enter", first);
  });

  const from = Math.max(0, Math.floor(view.value.top / height) - BEYOND);
  const to = Math.min(rows.length, Math.ceil((view.value.top + view.value.height) / height) + BEYOND);
  const at = active.value === null ? -1 : rows.findIndex((row) => keyOf(row) === active.value);
  const isShown = at >= from && at < to;

  const move = (index) => {
    const next = Math.max(0, Math.min(rows.length - 1, index));
    if (!rows[next]) return;
    active.value = keyOf(rows[next]);
    const element = box.current;
    const covered = head.current?.offsetHeight ?? 0;
    const top = next * height;
    if (top < element.scrollTop) element.scrollTop = top;
    else if (top + height + covered > element.scrollTop + element.clientHeight) {
      element.scrollTop = top + height + covered - element.clientHeight;
    }
  };
  const onKeyDown = (event) => {
    if (event.target !== box.current || event.altKey || event.ctrlKey || event.metaKey) return;
    const page = Math.max(1, Math.floor(view.value.height / height) - 2);
    const steps = { ArrowDown: at + 1, ArrowUp: Math.max(0, at - 1), PageDown: at + page, PageUp: at - page };
    const ends = { Home: 0, End: rows.length - 1 };
    const target = steps[event.key] ?? ends[event.key];
    if (target !== undefined) move(target);
    else if (event.key === "Enter" && at >= 0) open(rows[at]);
    else if (event.key === "Escape" && at >= 0) active.value = null;
    else return;
    event.preventDefault();
    event.stopPropagation();
  };

  return html`<div
    class="grid ${id}"
    ref=${box}
    role="grid"
    tabindex="0"
    aria-label=${label}
    aria-rowcount=${rows.length + 1}
    aria-colcount=${columns.length}
    aria-activedescendant=${isShown ? `${id}-row-${at}` : undefined}
    onKeyDown=${onKeyDown}
  >
    <div class="head" role="rowgroup" ref=${head}>
      <div class="row" role="row" aria-rowindex="1">
        ${columns.map((column) => html`<${Head} key=${column.id} ...${{ column, sort, onSort }} />`)}
      </div>
    </div>
    <div class="body" role="rowgroup" style=${{ height: `${rows.length * height}px` }}>
      ${rows.slice(from, to).map((row, index) => {
        const place = from + index;
        return html`<div
          class="row ${rowClass?.(row) ?? ""} ${place === at ? "active" : ""}"
          role="row"
          id="${id}-row-${place}"
          key=${keyOf(row)}
          aria-rowindex=${place + 2}
          aria-selected=${place === at}
          style=${{ transform: `translateY(${place * height}px)`, height: `${height}px` }}
          onClick=${(event) => {
            if (event.defaultPrevented || event.target.closest("a, button")) return;
            if (getSelection()?.type === "Range") return;
            active.value = keyOf(row);
            open(row);
          }}
        >
          ${columns.map(
            (column) => html`<div class="cell of-${column.id}" role="gridcell" key=${column.id}>${column.cell(row)}</div>`,
          )}
        </div>`;
      })}
    </div>
  </div>`;
}

function Head({ column, sort, onSort }) {
  const { id, title, sorts, mostFirst = false } = column;
  if (!sorts) return html`<div class="cell of-${id}" role="columnheader">${title}</div>`;
  const by = sort.by === id;
  const order = by ? (sort.down ? "descending" : "ascending") : "none";
  return html`<div class="cell of-${id}" role="columnheader" aria-sort=${order}>
    <button type="button" onClick=${() => onSort({ by: id, down: by ? !sort.down : mostFirst })}>
      ${title}${by && html`<${Icon} name=${sort.down ? "down" : "up"} />`}
    </button>
  </div>`;
}
