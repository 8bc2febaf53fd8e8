// Sign in with an API key, or at an issuer.

import { html, useLayoutEffect, useRef, useSignal } from "../view.js";
import { session, signIn } from "../model/session.js";
import { Icon, Logo } from "../parts/icon.js";
import { Trouble } from "../parts/notice.js";
import { Theme } from "../parts/shell.js";

const LENGTH = 64;

/** What does not look like a key, before it is sent; null if nothing is odd. */
function oddity(key) {
  if (key === "") return null;
  if (/^bearer\s/i.test(key)) return "Enter the key alone, without “Bearer”.";
  if (!"lgk_".startsWith(key.slice(0, 4))) return "A key begins with lgk_: this may be a name, or the id of a key.";
  if (/\s/.test(key)) return "There is a space in the key: it may have been copied with a line break.";
  if (key.length === LENGTH) return null;
  return `${key.length} of ${LENGTH} characters${key.length > LENGTH ? ": too many" : ""}.`;
}

/** Stands in place of the page that was asked for, which is shown as soon as one is signed in. */
export function SignIn() {
  const field = useRef(null);
  const odd = useSignal(null);
  const shown = useSignal(false);
  const busy = useSignal(false);
  const trouble = useSignal(null);
  const issuer = session.value.sign_in;
  const form = issuer?.key_form ?? true;
  const leave = () => location.assign(`../sign-in?return=${encodeURIComponent(location.pathname + location.search)}`);
  useLayoutEffect(() => field.current?.focus(), []);
  const send = async (event) => {
    event.preventDefault();
    const key = field.current.value.trim();
    if (!key || busy.value) return field.current.focus();
    busy.value = true;
    trouble.value = null;
    try {
      await signIn(key);
    } catch (problem) {
      // The detail says what is wrong with the key. That a key is needed is known here.
      trouble.value = problem.status === 401 ? { ...problem, title: "The gateway refuses this key" } : problem;
      busy.value = false;
      field.current.select();
    }
  };
  return html`<main class="sign-in">
    <form onSubmit=${send} aria-labelledby="sign-in-title">
      <div class="brand"><${Logo} /><span>Latchgate</span><${Theme} /></div>
      <h1 id="sign-in-title">Sign in</h1>
      ${session.value.why && html`<p class="why" role="status"><${Icon} name="warning" />${session.value.why}</p>`}
      ${issuer && html`<button type="button" class="main" onClick=${leave}>Sign in with ${issuer.issuer}</button>`}
      ${
        form &&
        html`
        <label for="key">API key</label>
        <div class="field">
          <input
            id="key"
            ref=${field}
            type=${shown.value ? "text" : "password"}
            autocomplete="current-password"
            autocapitalize="off"
            spellcheck=${false}
            required
            placeholder="lgk_…"
            aria-describedby="key-odd"
            onInput=${(event) => (odd.value = oddity(event.target.value.trim()))}
          />
          <button type="button" class="quiet" aria-pressed=${shown.value} onClick=${() => (shown.value = !shown.value)}>
            ${shown.value ? "Hide" : "Show"}
          </button>
        </div>
        <p class="hint" id="key-odd">${odd.value}</p>
        <${Trouble} problem=${trouble.value} />
        <button type="submit" class=${issuer ? "" : "main"} disabled=${busy.value}>${busy.value ? "Signing in…" : "Sign in"}</button>
        <p class="hint">
          <code>latchgate key new</code> makes keys. The page does not keep the key: the page gets a
          session, which ends when you sign out, after its time, or with the key.
        </p>
        `
      }
    </form>
  </main>`;
}
