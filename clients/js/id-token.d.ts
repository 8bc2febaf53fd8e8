export interface IdTokenOptions {
  /**
   * Gives the ID token, and is called for each exchange. The default reads `LATCHGATE_ID_TOKEN`, or the file that
   * `LATCHGATE_ID_TOKEN_FILE` names. An error that it throws ends the request; an error with `isTemporary: true` is like a
   * gateway that cannot serve, and the client asks again.
   */
  token?: () => string | PromiseLike<string>;
  /** The name of the gateway's key to ask for, if the claims of the token match several. */
  keyName?: string;
  /** Sends the requests instead of the global `fetch`. */
  fetch?: typeof globalThis.fetch;
  /** Called with each key before it is used, for a program that masks secrets in its log. */
  onKey?: (key: string) => void;
}

/**
 * Makes the `fetch` of a client that has no API key: it exchanges an ID token for a key of the gateway at `url`, and sends
 * every request with the key. It exchanges again before the key ends, and after an answer 401.
 */
export function idTokenFetch(url: string | URL, options?: IdTokenOptions): typeof globalThis.fetch;
