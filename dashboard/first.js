// What cannot wait for the modules: light or dark, before anything is drawn, and the question who is signed in, whose
// answer decides what is drawn.

(() => {
  const KEPT = "latchgate-theme";
  const dark = matchMedia("(prefers-color-scheme: dark)");

  function kept() {
    try {
      return localStorage.getItem(KEPT);
    } catch {
      return null; // A browser may forbid storage; then the system decides.
    }
  }

  function show() {
    const choice = kept();
    const theme = choice === "light" || choice === "dark" ? choice : dark.matches ? "dark" : "light";
    document.documentElement.dataset.theme = theme;
    dispatchEvent(new Event("latchgate-theme"));
  }

  window.latchgateTheme = {
    /** `system`, `light` or `dark`. */
    choice: () => kept() ?? "system",
    choose(choice) {
      try {
        if (choice === "system") localStorage.removeItem(KEPT);
        else localStorage.setItem(KEPT, choice);
      } catch {
        document.documentElement.dataset.theme = choice === "system" ? "light" : choice;
        return;
      }
      show();
    },
  };

  dark.addEventListener("change", show);
  addEventListener("storage", show);
  show();
})();

(() => {
  const options = { credentials: "same-origin", cache: "no-store", signal: AbortSignal.timeout(10_000) };
  const asked = { sentAt: performance.now(), response: fetch(new URL("../session", document.baseURI), options) };
  // Whoever takes the answer hears of a failure too.
  asked.response.catch(() => {});
  window.latchgateSession = asked;
})();
