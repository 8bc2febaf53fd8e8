// The pages, each brought when it is first gone to, or when there is nothing else to do.

import { html, signal, useLayoutEffect, useRef } from "../view.js";
import { Failed, Loading } from "../parts/notice.js";

const PAGES = {
  overview: () => import("./overview.js").then((part) => part.Overview),
  locks: () => import("./locks.js").then((part) => part.Locks),
  lock: () => import("./lock.js").then((part) => part.Lock),
  events: () => import("./events.js").then((part) => part.Events),
  sign_in: () => import("./sign_in.js").then((part) => part.SignIn),
  missing: () => import("./missing.js").then((part) => part.Missing),
};

/** What has been brought, by page. */
const brought = signal({});
const failed = signal(false);
const asked = new Set();

/** Brings a page, if it is not there yet. */
export async function bring(page) {
  if (asked.has(page)) return;
  asked.add(page);
  try {
    const Part = await PAGES[page]();
    brought.value = { ...brought.value, [page]: Part };
  } catch {
    failed.value = true;
  }
}

/** One of the pages. Whoever reads with their ears begins at the top of one that was gone to. */
export function Page({ page, name }) {
  const Part = brought.value[page];
  const before = useRef(null);
  useLayoutEffect(() => {
    if (!Part) return;
    const now = `${page} ${name ?? ""}`;
    if (before.current !== null && before.current !== now) document.querySelector("main h1")?.focus();
    before.current = now;
    whenIdle(() => Object.keys(PAGES).forEach(bring));
  }, [Part, page, name]);
  if (Part) return html`<${Part} />`;
  bring(page);
  if (failed.value) return html`<${Failed} problem=${GONE} again=${() => location.reload()} />`;
  return html`<${Loading} what="Bringing the page…" />`;
}

const GONE = {
  title: "A part of the page could not be loaded",
  detail: "The gateway was away, or is of another version by now. Try again loads the page anew.",
};

function whenIdle(act) {
  if ("requestIdleCallback" in window) requestIdleCallback(act, { timeout: 5_000 });
  else setTimeout(act, 1_000);
}
