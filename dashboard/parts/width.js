// Whether a table has no place for its columns; its style sheet says the same of itself.

import { signal } from "../view.js";

const narrow = matchMedia("(max-width: 960px)");

/** Changes when the window does. */
export const isNarrow = signal(narrow.matches);
narrow.addEventListener("change", () => (isNarrow.value = narrow.matches));
