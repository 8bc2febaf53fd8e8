// Exchanges ID tokens of OpenID Connect for keys of a gateway: a `fetch` for clients that have no API key.

import { now } from './clock.js';
import { read } from './request.js';

/** How long an exchange may take: the gateway may have to ask the issuer for its keys. */
const EXCHANGE_MS = 10_000;
/** How long before its end a key is exchanged for a new one, at most. A shorter key: in the last fifth of its life. */
const EARLY_MS = 60_000;
/** For how long a token that the gateway has refused is not sent again: refusals count for the address of the program. */
const REFUSED_MS = 60_000;
/** What a program is told whose token has expired. */
const NOT_RENEWED =
  ' Nothing renews a token that is given as a text (LATCHGATE_ID_TOKEN). A file (LATCHGATE_ID_TOKEN_FILE) is read again for each exchange.';

/** Reads the ID token of the environment. The file is read each time, because Kubernetes and others replace it. */
async function environmentToken() {
  const { LATCHGATE_ID_TOKEN: text, LATCHGATE_ID_TOKEN_FILE: file } = globalThis.process?.env ?? {};
  if (text !== undefined) return text;
  if (!file) throw new Error('there is no ID token: neither LATCHGATE_ID_TOKEN nor LATCHGATE_ID_TOKEN_FILE is set');
  const { readFile } = await import('node:fs/promises');
  return readFile(file, 'utf8').catch(({ code }) => {
    throw new Error(`cannot read the ID token from ${file}: ${code}`);
  });
}

/** The answer to a request for which there is no key. */
const noKey = (status, code, detail) => ({ status, text: JSON.stringify({ status, code, title: 'There is no key for the request', detail }) });

const late = () => noKey(503, 'not-exchanged', 'The gateway has not exchanged the ID token for a key in time.');

/** Resolves when a signal is aborted. `done` ends the wait. */
function aborted(signal) {
  let done;
  const wait = new Promise((resolve) => {
    signal?.addEventListener('abort', resolve);
    done = () => signal?.removeEventListener('abort', resolve);
    if (signal?.aborted) resolve();
  });
  return { wait, done };
}

class Exchanger {
  #address;
  #options;
  #key;
  /** From when on the key is exchanged again. */
  #due = 0;
  #refused;
  #exchanging;

  constructor(address, options) {
    this.#address = address;
    this.#options = options;
  }

  /**
   * Sends a request with a key. If there is one, the request is sent before this function waits for anything: a page that
   * is closed sends its releases at once, and no renewal waits for an exchange.
   */
  async fetch(to, init = {}) {
    if (!this.#key) {
      const failed = await this.#exchanged(init.signal);
      if (failed) return failed;
    } else if (now() > this.#due && init.method !== 'DELETE') {
      // If this fails, the key stays: the gateway renews leases with it until a day after the exchange.
      this.#exchange().catch(() => {});
    }
    const key = this.#key;
    const answer = await this.#send(to, init);
    if (answer.status !== 401) return answer;
    // The key was revoked, its rules have changed, or it has ended.
    answer.body?.cancel?.().catch(() => {});
    const failed = key === this.#key && (await this.#exchanged(init.signal));
    return failed || this.#send(to, init);
  }

  #send(to, init) {
    return this.#options.fetch(to, { ...init, headers: { ...init.headers, authorization: `Bearer ${this.#key}` } });
  }

  /** Waits for an exchange. Resolves to nothing, or to the answer to a request that cannot be sent. */
  async #exchanged(signal) {
    const { wait, done } = aborted(signal);
    try {
      const failed = await Promise.race([this.#exchange(), wait.then(late)]);
      if (failed?.error) throw failed.error;
      return failed && new Response(failed.text, { status: failed.status, headers: { 'content-type': 'application/problem+json', ...failed.headers } });
    } finally {
      done();
    }
  }

  /** One exchange at a time. Resolves to nothing, or to why there is no key. */
  #exchange() {
    this.#exchanging ??= this.#exchangeOnce().finally(() => {
      this.#exchanging = undefined;
    });
    return this.#exchanging;
  }

  async #exchangeOnce() {
    const { token: source, keyName, fetch, onKey } = this.#options;
    let token;
    try {
      token = String(await source()).trim();
      if (!token) throw new Error('the ID token is empty');
    } catch (error) {
      return noKey(error.isTemporary ? 503 : 401, 'no-id-token', error.message);
    }
    if (this.#refused?.token === token && now() < this.#refused.until) return this.#refused;
    const sentAt = now();
    let answer;
    let text;
    try {
      answer = await fetch(this.#address, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({ id_token: token, name: keyName }),
        // A redirect could carry the token to another host.
        redirect: 'manual',
        signal: AbortSignal.timeout(EXCHANGE_MS),
      });
      text = await read(answer);
    } catch (cause) {
      // The client is told that its request was not sent, whatever became of the exchange. The cause says whether a
      // certificate is refused.
      return cause?.name === 'TimeoutError' ? late() : { error: new TypeError('ConnectionRefused', { cause: cause?.cause ?? cause }) };
    }
    let body = {};
    try {
      body = JSON.parse(text) ?? {};
    } catch {
      // A proxy wrote the answer.
    }
    const { status } = answer;
    if (status === 201 && /^[!-~]+$/.test(body.key) && body.expires_in_ms > 0) {
      const lives = body.expires_in_ms;
      onKey?.(body.key);
      this.#key = body.key;
      this.#due = sentAt + lives - Math.min(lives / 5, EARLY_MS);
      this.#refused = undefined;
      return undefined;
    }
    if (typeof body.code !== 'string') return noKey(503, 'not-exchanged', `The gateway has not exchanged the ID token for a key: status ${status}.`);
    const after = answer.headers.get('retry-after');
    if (/408|429|503/.test(status)) return { status, text, headers: after && { 'retry-after': after } };
    if (/4../.test(status)) {
      if (source === environmentToken && globalThis.process.env.LATCHGATE_ID_TOKEN !== undefined && /\(time\)/.test(body.detail)) {
        text = JSON.stringify({ ...body, detail: body.detail + NOT_RENEWED });
      }
      this.#refused = { status, text, token, until: now() + REFUSED_MS };
      return this.#refused;
    }
    return noKey(503, 'not-exchanged', `The gateway has not exchanged the ID token for a key: ${body.detail ?? body.code}`);
  }
}

export function idTokenFetch(url, { token = environmentToken, keyName, fetch = (...args) => globalThis.fetch(...args), onKey } = {}) {
  let address;
  try {
    const { origin, pathname } = new URL(url);
    address = `${origin}${pathname.replace(/\/$/, '')}/session/token`;
  } catch {
    // The error of `URL` is dropped, because it would show the URL, which may contain a password.
    throw new TypeError('url: expected a URL like http://localhost:7420');
  }
  const exchanger = new Exchanger(address, { token, keyName, fetch, onKey });
  return (to, init) => exchanger.fetch(to, init);
}
