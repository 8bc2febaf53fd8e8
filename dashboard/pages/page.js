// The pages, by their names.

import { html, useLayoutEffect, useRef } from "../view.js";
import { Events } from "./events.js";
import { Lock } from "./lock.js";
import { Locks } from "./locks.js";
import { Missing } from "./missing.js";
import { Overview } from "./overview.js";
import { SignIn } from "./sign_in.js";

const PAGES = { overview: Overview, locks: Locks, lock: Lock, events: Events, sign_in: SignIn, missing: Missing };

/** One of the pages. Whoever reads with their ears begins at the top of one that was gone to. */
export function Page({ page, name }) {
  const Part = PAGES[page];
  const before = useRef(null);
  useLayoutEffect(() => {
    const now = `${page} ${name ?? ""}`;
    if (before.current !== null && before.current !== now) document.querySelector("main h1")?.focus();
    before.current = now;
  }, [page, name]);
  return html`<${Part} />`;
}
