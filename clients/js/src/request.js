// Sends one request, and sends it again where that is safe.

import { backoff, now, sleep, wallOffset } from './clock.js';
import { GatewayUnreachable, OutcomeUnknown, refusal } from './errors.js';
import { lineOf } from './waits.js';

/** How long the answer to one copy of a request may take, after its wait for a lock. */
export const ANSWER_MS = 5_000;
/** How long a request without a wait is retried. */
export const RETRY_MS = 10_000;
/** How long the end of a lease, and of a client, may take: a gateway that does not answer holds up no program that ends. */
export const END_MS = 5_000;
/** How long no gateway answers before the log says so. */
const SILENT_MS = 3_000;
/** How long after the deadline of a request the answer to its last copy may come. */
const LATE_MS = 1_500;
/** The maximum length of an answer. The longest answer is a page of the list of locks. */
const LONGEST_ANSWER = 2 ** 24;

// Matches errors of a connection that was never made, so that no request was sent. Errors of a connection that was lost
// later do not match.
const NOT_CONNECTED = /connect E|getaddrinfo|ECONNREFUSED|CONNECT_TIMEOUT|ConnectionRefused|\(Connect\)/;
/**
 * Matches errors that a further copy would meet again: a certificate that is not trusted, a port that `fetch` refuses.
 */
const NOT_TRUSTED = /_CERT|CERT_|LEAF_SIG|peer cert|bad port/;
/**
 * Matches messages of mistakes of the caller. Being a TypeError is not enough: `fetch` throws one if the network fails,
 * too. Deno's message then begins with "error sending" and names the URL, which may contain such a word.
 */
const MISTAKE = /^(?!error sending).*(invalid|ByteString|execute|parse|blocked|not a function|undefined|null)/is;

/** Converts the field names of a document to camel case. The names of metadata entries stay as they are. */
function camel(value) {
  if (Array.isArray(value)) return value.map(camel);
  if (Object(value) !== value) return value;
  const entries = Object.entries(value).map(([key, it]) => [
    key.replace(/_(\w)/g, (_, letter) => letter.toUpperCase()),
    key === 'metadata' ? it : camel(it),
  ]);
  return Object.fromEntries(entries);
}

/** Reads the text of an answer; `undefined` if the text is longer than any answer of a gateway. */
export async function read(response) {
  const reader = response.body?.getReader?.();
  // The answer has no body, or a `fetch` that is not the runtime's has made the answer.
  if (!reader) return response.text();
  const decoder = new TextDecoder();
  let text = '';
  for (;;) {
    const { done, value } = await reader.read();
    text += decoder.decode(value, { stream: !done });
    if (done) return text;
    if (text.length > LONGEST_ANSWER) return void reader.cancel().catch(() => {});
  }
}

/** Makes the function that sends one copy of a request to a gateway. Only this function knows the API key. */
export function connect({ href, origin }, key, fetch, warn) {
  const base = href.replace(/\/$/, '');
  /** When the first request was sent of those that no gateway has answered; Infinity once the log says so. */
  let silentSince = 0;

  function told(result, { sentAt }) {
    const { failure } = result;
    silentSince = failure && !failure.problem ? silentSince || sentAt : 0;
    if (now() - silentSince > SILENT_MS && silentSince) {
      warn(`latchgate: no gateway has answered for ${Math.round((now() - silentSince) / 1e3)} s: ${failure.message}`);
      silentSince = Infinity;
    }
    return result;
  }

  /**
   * Sends one copy of a request. Resolves to a final answer, or to `{ failure, inDoubt, isFinal, pauseMs }`; unless
   * `isFinal`, a further copy may succeed. Rejects with the reason of `signal`.
   */
  async function sendCopy({ method, path, token, fence, idempotencyKey, body, keepalive }, timeoutMs, signal) {
    signal?.throwIfAborted();
    const headers = {};
    if (key) headers.authorization = `Bearer ${key}`;
    if (token) headers['lock-token'] = token;
    if (fence) headers['fencing-token'] = `${fence}`;
    if (idempotencyKey) headers['idempotency-key'] = idempotencyKey;
    if (body) headers['content-type'] = 'application/json';
    const text = body && JSON.stringify(body);
    const controller = new AbortController();
    const abort = () => controller.abort();
    const timer = setTimeout(abort, timeoutMs);
    signal?.addEventListener('abort', abort, { once: true });
    const sent = { sentAt: now(), sentWall: wallOffset() };
    try {
      const response = await fetch(base + path, {
        method,
        headers,
        body: text,
        keepalive,
        // Redirects are not followed, because they could carry secrets to another host.
        redirect: 'manual',
        signal: controller.signal,
      });
      // The answer is used even if the signal was aborted meanwhile: it may grant a lease that has to be released.
      return told(judge(response, await read(response), sent, method), sent);
    } catch (cause) {
      signal?.throwIfAborted();
      const timedOut = controller.signal.aborted;
      const why = [cause, cause?.cause].map((error) => [error?.code, error?.message, error?.errors].join(' ')).join();
      const refused = NOT_TRUSTED.test(why);
      const reached = timedOut || !(refused || NOT_CONNECTED.test(why));
      if (reached && MISTAKE.test(cause?.message ?? '')) throw cause;
      const inDoubt = reached && method !== 'GET';
      // A browser gives no cause for a failed connection.
      const explained = timedOut || cause?.code || cause?.cause;
      const what = timedOut ? 'did not answer in time' : reached && explained ? 'closed the connection' : 'cannot be reached';
      const Failure = inDoubt && explained ? OutcomeUnknown : GatewayUnreachable;
      const failure = new Failure(`${origin} ${what}`, { cause: timedOut ? undefined : cause });
      return told({ failure, inDoubt, isFinal: refused }, sent);
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener('abort', abort);
    }
  }

  return Object.assign(sendCopy, { line: lineOf(origin), warn });
}

/** Decides what an answer means: final or to be retried. The table is in ../../conformance.md. */
function judge(response, text, sent, method) {
  let body;
  try {
    body = text ? camel(JSON.parse(text)) : undefined;
  } catch {
    // The body is not JSON: a proxy wrote it, or it was cut off.
  }
  const { status, ok } = response;
  const location = /3../.test(status) && response.headers.get('location');
  const answer = { status, ok, body, location, ...sent, receivedAt: now() };
  const problem = body?.code;
  // A success without `results`, other than 204, does not prove that the lease is released.
  const isForeign = ok && status !== 204 && !(method === 'DELETE' ? body?.results?.map : body);
  // `Retry-After` may also be a date, which is ignored.
  const pauseMs = Math.max(body?.retryAfterMs ?? response.headers.get('retry-after') * 1e3, 0) || 0;
  // A proxy that limits the rate has not passed the request on; any other proxy may have. An answer that is too long is
  // incomplete, whatever its status.
  if (isForeign || text === undefined || status === 504 || (!problem && /408|5../.test(status))) {
    const inDoubt = method !== 'GET';
    return { failure: refusal(answer, inDoubt ? OutcomeUnknown : undefined), inDoubt, pauseMs };
  }
  if (/408|429|503/.test(status) && problem !== 'fence-exhausted') return { failure: refusal(answer), inDoubt: false, pauseMs };
  return answer;
}

/**
 * The state of sending one request: its deadline, and whether a copy may have been carried out although its answer was
 * lost.
 */
export class Retry {
  inDoubt;
  /** Whether the request is not sent again once a copy may have been carried out. */
  once;
  failed = 0;

  constructor(deadline, signal, background) {
    this.deadline = deadline;
    this.signal = signal;
    this.background = background;
  }

  get left() {
    return Math.max(this.deadline - now(), 0);
  }

  /** The time-out of the next copy, which waits for a lock for `wait`. */
  timeout(wait = 0) {
    return Math.min(wait + ANSWER_MS, this.left + LATE_MS);
  }

  /** Pauses before the next copy, or throws the error of the last copy. The last copy is sent at the deadline. */
  async after({ failure, inDoubt, isFinal, pauseMs }) {
    this.failed += 1;
    this.inDoubt ||= inDoubt;
    if (isFinal || !this.left || (inDoubt && this.once)) throw this.doubted(failure, inDoubt);
    await sleep(Math.min(backoff(this.failed, pauseMs), this.left), this.signal, this.background);
  }

  /**
   * The error for a failure: `OutcomeUnknown` after a copy in doubt, unless the failure `settles` what became of all
   * copies.
   */
  doubted(failure, settles) {
    const { status, message } = failure;
    return this.inDoubt && !settles
      ? new OutcomeUnknown(`an earlier copy was not answered; then: ${message}`, { status, cause: failure })
      : failure;
  }
}

/** Sends a request until it is answered or its deadline has passed. */
export async function send(sendCopy, request, retry) {
  for (;;) {
    const answer = await sendCopy(request, retry.timeout(), retry.signal);
    // In the background no caller repeats the request after an error inside the gateway, so it is repeated here.
    if (!answer.failure && !(retry.background && answer.status >= 500)) return answer;
    await retry.after(answer);
  }
}
