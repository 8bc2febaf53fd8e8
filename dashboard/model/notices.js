// Notices of the browser about a lock: that it is free, that this page has got it, or that somebody asks for it.

import { signal } from "../view.js";
import { ask, lockPath, Problem } from "./api.js";
import { ENDS, watch } from "./feed.js";
import { plain } from "./visible.js";

/** A browser shows notices for secure pages only. */
export const canNotify = window.isSecureContext && "Notification" in window;

/** A lock that ends may pass to a waiter: so long after its end it is free. */
const PASSED = 1_500;

/** The locks of which somebody wants to be told. */
export const armed = signal(new Set());

/** Whether the stream of events is wanted although nobody looks at the page. */
export const isArmed = () => armed.peek().size > 0;

/** Those that were held when they were looked at, or heard of, last. */
const held = new Set();

/** Tells of the lock from now on, or no more. Answers whether it does: the browser asks whether it may. */
export async function arm(name, on) {
  if (on && (await Notification.requestPermission()) !== "granted") return false;
  const names = new Set(armed.value);
  on ? names.add(name) : names.delete(name);
  armed.value = names;
  held.delete(name);
  if (on) look(name);
  return on;
}

/** Shows a notice, if this lock is one of those. */
export function notify(name, words) {
  if (!armed.peek().has(name)) return;
  try {
    const notice = new Notification(`${plain(name)} ${words}`, { tag: `latchgate ${name}` });
    notice.onclick = () => window.focus();
  } catch {
    // Chrome on Android has the name, and shows nothing for a page.
  }
}

/** Tells if the lock was held, and is free now: the gateway knows, and the list may not have all locks. */
async function look(name) {
  try {
    const { body } = await ask(lockPath(name));
    if (!armed.peek().has(name)) return;
    if (body.state === "free" && held.has(name)) notify(name, "is free");
    body.state === "free" ? held.delete(name) : held.add(name);
  } catch (problem) {
    if (!(problem instanceof Problem)) throw problem;
  }
}

/** What has happened meanwhile was not heard. */
export const lookAtArmed = () => armed.peek().forEach(look);

watch(({ name, kind, by, reason }) => {
  if (!armed.peek().has(name)) return;
  if (kind === "release-requested") notify(name, `is asked for${by ? ` by ${plain(by)}` : ""}: ${plain(reason ?? "")}`);
  if (kind === "acquired") held.add(name);
  if (!ENDS.includes(kind)) return;
  held.add(name);
  setTimeout(look, PASSED, name);
});

/** Forgets the locks that may not be seen any more, or all of them. */
export function keepNotices(isSeen = () => false) {
  armed.value = new Set([...armed.peek()].filter(isSeen));
}
