// Which page is shown: the address decides, so that every view can be linked to.

import { signal } from "../view.js";
import { root, segment } from "./api.js";

const base = new URL("dashboard", root).pathname;

/** `{page, name, query}`; `page` is `overview`, `locks`, `lock`, `events` or `missing`. */
export const route = signal(read());

/** The address of a page. */
export function href(path = "", query = {}) {
  const given = Object.entries(query).filter(([, value]) => value);
  const search = new URLSearchParams(given).toString();
  return base + (path && `/${path}`) + (search && `?${search}`);
}

/** The address of the page of a lock. */
export function lockHref(name) {
  return href(`locks/${segment(name)}`);
}

/** Goes to an address of this page. */
export function go(to) {
  history.pushState(null, "", to);
  route.value = read();
}

/** Changes the query of the address without a new entry in the history. */
export function requery(query) {
  const path = location.pathname.slice(base.length + 1);
  try {
    history.replaceState(null, "", href(path, query));
  } catch {
    // Some browsers allow only so many changes in a while; the page goes on all the same.
  }
  route.value = { ...route.value, query };
}

function read() {
  const query = Object.fromEntries(new URLSearchParams(location.search));
  const path = location.pathname.slice(base.length).replace(/^\/|\/$/g, "");
  if (path === "") return { page: "overview", query };
  // The slashes of a name are written %2F, and are understood as they are: somebody has typed the address.
  if (path.startsWith("locks/")) return { page: "lock", name: decoded(path.slice("locks/".length)), query };
  if (path === "locks" || path === "events") return { page: path, query };
  return { page: "missing", query };
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

addEventListener("popstate", () => (route.value = read()));

addEventListener("click", (event) => {
  const link = event.target.closest?.("a[href]");
  const plain = event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey && !event.altKey;
  if (!link || !plain || event.defaultPrevented || link.target || link.hasAttribute("download")) return;
  const to = new URL(link.href);
  const ours = to.pathname === base || to.pathname.startsWith(`${base}/`);
  if (to.origin !== location.origin || !ours) return;
  event.preventDefault();
  if (to.href !== location.href) go(to.href);
});
