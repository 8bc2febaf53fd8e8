// What one types in a terminal to do the same.

import { lockPath, root } from "./api.js";
import { session } from "./session.js";

/** A `curl` with these options about a lock, with the key where one is needed. */
export function curl(options, name, verb) {
  const key = session.value.authentication ? [`-H "Authorization: Bearer $LATCHGATE_KEY"`] : [];
  return ["curl", ...options, ...key, `'${new URL(lockPath(name, verb), root).href}'`].join(" ");
}
