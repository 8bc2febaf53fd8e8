// The small drawings. Each stands beside a word or on a button with a label, and means nothing alone.

import { html } from "../view.js";

const LINES = {
  overview: "M2 13V8M6 13V3M10 13v-6M14 13V5",
  locks: "M4 7.5h8v6H4zM5.5 7.5V5a2.5 2.5 0 0 1 5 0v2.5",
  events: "M2 4h12M2 8h8M2 12h10",
  queued: "M3 4h10M3 8h10M3 12h6",
  acquired: "M4 7.5h8v6H4zM5.5 7.5V5a2.5 2.5 0 0 1 5 0v2.5",
  renewed: "M13 8a5 5 0 1 1-1.6-3.7M13 2v3h-3",
  "release-requested": "M8 2.5a3.5 3.5 0 0 1 3.5 3.5v3.5l1.5 2H3l1.5-2V6A3.5 3.5 0 0 1 8 2.5M6.8 13.5h2.4",
  bell: "M8 2.5a3.5 3.5 0 0 1 3.5 3.5v3.5l1.5 2H3l1.5-2V6A3.5 3.5 0 0 1 8 2.5M6.8 13.5h2.4",
  released: "M4 7.5h8v6H4zM5.5 7.5V5a2.5 2.5 0 0 1 4.8-1",
  expired: "M8 2.5a5.5 5.5 0 1 0 0 11 5.5 5.5 0 0 0 0-11M8 5v3l2 1.5",
  lost: "M6.5 9.5l3-3M7 4.5l1-1a3 3 0 0 1 4.2 4.2l-1 1M9 11.5l-1 1a3 3 0 0 1-4.2-4.2l1-1M3 3l1.5 1.5M11.5 11.5L13 13",
  broken: "M5.5 2h5L14 5.5v5L10.5 14h-5L2 10.5v-5zM6 6l4 4M10 6l-4 4",
  "stale-write-refused": "M8 2l5 1.8v4c0 3-2 5-5 6.2-3-1.2-5-3.2-5-6.2v-4zM6 6l4 4M10 6l-4 4",
  "order-set": "M3 13.5h10M8 10.5v-8M4.5 6L8 2.5 11.5 6",
  "store-changed": "M3 4.5c0-1.4 2.2-2.5 5-2.5s5 1.1 5 2.5v7c0 1.4-2.2 2.5-5 2.5s-5-1.1-5-2.5zM3 4.5c0 1.4 2.2 2.5 5 2.5s5-1.1 5-2.5",
  gap: "M2 8h2M7 8h2M12 8h2",
  reserved: "M2.5 3.5h11v10h-11zM2.5 7h11M5.5 2v3M10.5 2v3",
  search: "M7 2.5a4.5 4.5 0 1 0 0 9 4.5 4.5 0 0 0 0-9M10.5 10.5L14 14",
  copy: "M5.5 5.5h8v8h-8zM10.5 5.5v-3h-8v8h3",
  done: "M3 8.5l3.5 3.5L13 4.5",
  close: "M4 4l8 8M12 4l-8 8",
  pause: "M5.5 3v10M10.5 3v10",
  play: "M5 3l8 5-8 5z",
  export: "M8 2v8M5 7l3 3 3-3M3 13h10",
  warning: "M8 2.5L14.5 13.5h-13zM8 6.5v3.5M8 11.8v.2",
  failed: "M8 2.5a5.5 5.5 0 1 0 0 11 5.5 5.5 0 0 0 0-11M8 5v4M8 10.8v.2",
  light: "M8 5a3 3 0 1 0 0 6 3 3 0 0 0 0-6M8 1.5v1M8 13.5v1M1.5 8h1M13.5 8h1M3.4 3.4l.7.7M11.9 11.9l.7.7M3.4 12.6l.7-.7M11.9 4.1l.7-.7",
  dark: "M13 9.5A5.5 5.5 0 0 1 6.5 3 5.5 5.5 0 1 0 13 9.5z",
  system: "M2 3h12v8H2zM6 14h4M8 11v3",
  keyboard: "M1.5 4h13v8h-13zM4 6.5h.2M7 6.5h.2M10 6.5h.2M12 6.5h.2M5 9.5h6",
  leave: "M9.5 3H3v10h6.5M7 8h7M11.5 5.5L14 8l-2.5 2.5",
  up: "M4 9.5L8 5.5l4 4",
  down: "M4 6.5l4 4 4-4",
  back: "M9.5 4l-4 4 4 4",
};

/** One of the drawings. */
export function Icon({ name }) {
  return html`<svg class="icon" viewBox="0 0 16 16" aria-hidden="true" focusable="false">
    <path d=${LINES[name]} />
  </svg>`;
}

/** The mark of Latchgate: a latch across a gate. */
export function Logo() {
  return html`<svg class="logo" viewBox="0 0 24 24" aria-hidden="true" focusable="false">
    <rect x="2" y="3" width="20" height="18" rx="5" />
    <path d="M7 8v8M17 8v8M7 12h10" />
    <circle cx="12" cy="12" r="2" />
  </svg>`;
}
