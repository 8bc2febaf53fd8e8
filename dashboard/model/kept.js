// The settings of the page (such as the sort of the list), kept in the storage of the browser.

const named = (name) => `latchgate-${name}`;
/** A browser may forbid storage: then it is remembered until the page is closed. */
const here = new Map();

/** What was remembered under this name, or null. */
export function kept(name) {
  try {
    return here.get(name) ?? localStorage.getItem(named(name));
  } catch {
    return here.get(name) ?? null;
  }
}

/** Remembers a text. */
export function keep(name, text) {
  here.set(name, text);
  try {
    localStorage.setItem(named(name), text);
  } catch {
    // The storage is forbidden or full: `here` keeps the setting until the page is closed.
  }
}
