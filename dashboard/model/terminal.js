// What one types in a terminal to do the same.

import { lockPath, root } from "./api.js";
import { session } from "./session.js";

/** A `latchgate` about a lock, behind the line that says where the gateway is. */
export function latchgate(verb, name, ...rest) {
  const quoted = name.startsWith("~") ? `'${name}'` : name;
  // Behind `--` nothing is an option.
  return ["latchgate", verb, ...(name.startsWith("-") ? [...rest, "--", name] : [quoted, ...rest])].join(" ");
}

/** How a terminal is told where the gateway is; the key is never an argument. */
export const located = () => `export LATCHGATE_URL='${root.href.replace(/\/$/, "")}'`;

/** A `curl` with these options about a lock, with the key where one is needed. */
export function curl(options, name, verb) {
  const key = session.value.authentication ? [`-H "Authorization: Bearer $LATCHGATE_KEY"`] : [];
  return ["curl", ...options, ...key, `'${new URL(lockPath(name, verb), root).href}'`].join(" ");
}
