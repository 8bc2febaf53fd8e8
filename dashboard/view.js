// What every part of the page is written with: elements, and state that redraws whatever reads it.

import { h } from "./vendor/preact@11.2.0/preact.js";
import htm from "./vendor/htm@3.1.1/htm.js";

export { Fragment, render } from "./vendor/preact@11.2.0/preact.js";
export { useEffect, useLayoutEffect, useRef, useState } from "./vendor/preact@11.2.0/hooks.js";
export { batch, computed, effect, signal, untracked, useSignal } from "./vendor/preact-signals@2.11.4/signals.js";

export const html = htm.bind(h);
