/** The path of the program for this machine. */
export function program(): string;

/** A gateway for a test run: on a free port of 127.0.0.1, without API keys, with an empty store of its own. */
export interface Gateway {
  /** Its address, such as `http://127.0.0.1:41507`. */
  url: string;
  /** Ends it, and removes its store. */
  stop(): Promise<void>;
}

/**
 * Starts a gateway. It ends with the test that is given, or when the process ends, however that ends.
 *
 * `gateway(t)` in a test of `node:test`; `await gateway({ after })` outside of all tests of a file, and
 * `await gateway({ after: afterAll })` in Vitest.
 */
export function gateway(t?: { after(stop: () => Promise<void>): unknown }): Promise<Gateway>;
