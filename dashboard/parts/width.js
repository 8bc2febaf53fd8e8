// Whether there is only the width of a phone; the style sheets say the same of themselves.

import { signal } from "../view.js";

const narrow = matchMedia("(max-width: 760px)");

/** Changes when the window does. */
export const isNarrow = signal(narrow.matches);
narrow.addEventListener("change", () => (isNarrow.value = narrow.matches));
