// Notices of the browser about a lock: that it is free, that this page has got it, or that somebody asks for it.

import { signal } from "../view.js";
import { ENDS, watch } from "./feed.js";
import { locks } from "./locks.js";
import { plain } from "./visible.js";

/** A browser shows notices for secure pages only. */
export const canNotify = window.isSecureContext && "Notification" in window;

/** A lock that ends may pass to a waiter: so long after its end it is free. */
const PASSED = 1_500;

/** The locks of which somebody wants to be told. */
export const armed = signal(new Set());

/** Whether the stream of events is wanted although nobody looks at the page. */
export const isArmed = () => armed.peek().size > 0;

/** Tells of the lock from now on, or no more. Answers whether it does: the browser asks whether it may. */
export async function arm(name, on) {
  if (on && (await Notification.requestPermission()) !== "granted") return false;
  const names = new Set(armed.value);
  on ? names.add(name) : names.delete(name);
  armed.value = names;
  return on;
}

/** Shows a notice, if this lock is one of those. */
export function notify(name, words) {
  if (!armed.peek().has(name)) return;
  const notice = new Notification(`${plain(name)} ${words}`, { tag: `latchgate ${name}` });
  notice.onclick = () => window.focus();
}

watch(({ name, kind, by, reason }) => {
  if (!armed.peek().has(name)) return;
  if (kind === "release-requested") notify(name, `is asked for${by ? ` by ${plain(by)}` : ""}: ${plain(reason ?? "")}`);
  if (!ENDS.includes(kind)) return;
  setTimeout(() => {
    const lock = locks.get(name);
    if (!lock || lock.ended) notify(name, "is free");
  }, PASSED);
});

/** Forgets the locks that may not be seen any more, or all of them. */
export function keepNotices(isSeen = () => false) {
  armed.value = new Set([...armed.peek()].filter(isSeen));
}
