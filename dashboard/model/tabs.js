// The other tabs of the page in this browser: there is one session for all of them.

import { root } from "./api.js";

/** Gateways below different paths of one host have sessions of their own. */
const NAME = `latchgate-session ${root.pathname}`;

let channel = null;
let hear = () => {};

/** Who hears what other tabs tell. */
export function hearTabs(to) {
  hear = to;
}

/** Tells the other tabs: a word, and never a secret. */
export function tellTabs(word) {
  channel?.postMessage(word);
}

function join() {
  channel = new BroadcastChannel(NAME);
  channel.onmessage = ({ data }) => hear(data);
}

join();
// A page that the browser keeps hears nothing, and asks when it is shown again.
addEventListener("pagehide", () => channel.close());
addEventListener("pageshow", (event) => event.persisted && join());
