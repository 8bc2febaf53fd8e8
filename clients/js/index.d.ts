/** A number of milliseconds, or a text such as `'500ms'`, `'30s'`, `'1.5m'`, `'2h'`, `'1d'`. Only a wait may be `Infinity`. */
export type Duration = number | `${number}${'ms' | 's' | 'm' | 'h' | 'd'}`;

export type Mode = 'exclusive' | 'shared';

/** A lock of several, with a mode, a limit and an order of its own. */
export interface LockTerms {
  name: string;
  /** `'shared'` holds this lock beside others that share it. The default is `'exclusive'`, or `'shared'` with a limit. */
  mode?: Mode;
  /** Share this lock with fewer than this many others. */
  limit?: number;
  /** The order of this lock, which must be held alone. */
  order?: number;
}

/** A lock, or several: each a name, or a name with terms of its own. */
export type Locks = string | LockTerms | readonly (string | LockTerms)[];

export interface ReleaseRequest {
  /** The lock that is asked for. */
  name: string;
  /** Who asks: the name of an API key. */
  by: string | undefined;
  reason: string;
  /** How long the lease lasts at most from now; it is broken then. */
  withinMs: number;
}

export interface LatchgateOptions {
  /** The API key, if the gateway asks for one. */
  key?: string;
  /** Sends the requests instead of the global `fetch`. */
  fetch?: typeof globalThis.fetch;
  /** Who asks, for people to read. */
  owner?: string;
  /** Called when somebody asks for a lock that this client holds. */
  onReleaseRequested?: (request: ReleaseRequest, lease: Lease) => void;
  /**
   * How many acquires of the program wait at the gateway at once; the others stand in line. The largest value that a client was
   * given counts. The default, 4, leaves two of the six connections that a browser has for a gateway over HTTP/1.1.
   */
  waits?: number;
  /** The log: told that no gateway has answered for some seconds, and which lock may have been lost. The default is `console.warn`. */
  warn?: (text: string) => void;
}

export interface AcquireOptions {
  /** How long the lease lasts without a renewal. The default is that of the gateway, 30 s. */
  ttl?: Duration;
  /** How long to wait for a lock that is held. The default, `false`, is not to wait; `Infinity` waits for as long as it takes. */
  wait?: Duration | false;
  /** `'shared'` holds the lock beside others that share it. Of several locks it is for all, and none may have terms of its own. */
  mode?: Mode;
  /** Share the lock with fewer than this many others; the lease has a `slot` then. Of several locks it is for all. */
  limit?: number;
  /**
   * Takes an older waiter of the same lock and API key, with the same text here, out of the queue. Its acquire rejects
   * with the code `newer-waiter`. For one lock only.
   */
  supersedes?: string;
  /**
   * The order of the work: a whole number that is higher for newer work, such as the number of a run. Rejects with the code
   * `outdated-order`, also during the wait, if the lock was granted for a higher order. Of several locks it is for those that
   * are held alone.
   */
  order?: number;
  /** Why older work is done on purpose: the `order` is neither compared nor remembered. The key needs the permission `order`. */
  rollback?: string;
  /**
   * Reserves the lock until a time: RFC 3339 with an offset. For one lock only, without `ttl`, `maxHold`, `minHold`, `limit` and
   * the mode `'shared'`. No renewal changes the end.
   */
  reserve?: { until: string; reason: string };
  /** Who asks, for people to read. */
  owner?: string;
  /** Facts about the holder, for people to read. */
  metadata?: Record<string, string>;
  /** The lease ends after this time, however often it is renewed. */
  maxHold?: Duration;
  /**
   * For how long after its grant the lock is granted to nobody else, even if the lease is released earlier: the lock rests. A shorter
   * `ttl` is raised to it.
   */
  minHold?: Duration;
  /**
   * Repeats an acquire of an earlier process under the same key: 16 to 128 visible ASCII characters, as secret as a token.
   * Without it the client sends a fresh one. An aborted acquire with a key of yours keeps its place for five seconds.
   */
  idempotencyKey?: string;
  /** Whether the client renews the lease for as long as it is held. The default is `true`. */
  renew?: boolean;
  /** Gives up waiting. It does not end the lease. */
  signal?: AbortSignal;
  /** Called when somebody asks for the lock. */
  onReleaseRequested?: (request: ReleaseRequest, lease: Lease) => void;
}

export class Latchgate {
  constructor(url: string | URL, options?: LatchgateOptions);

  /**
   * Acquires a lock, or all of several or none. Rejects with `LockHeld` if somebody else holds it for as long as the wait lasts.
   * `['deploy', { name: 'openai', limit: 20 }]` holds `deploy` alone and one of the twenty places of `openai`.
   */
  acquire(name: Locks, options?: AcquireOptions): Promise<Lease>;

  /**
   * Runs `work` under a lease and gives it back. Rejects with `LeaseLost` if the lease was lost before `work` was done, also if only
   * the release finds that out. Rejects with `OutcomeUnknown` if the lease was over when a release without an answer was repeated.
   * If the release fails otherwise, it is not known whether the lease was lost, which `warn` is told.
   * Stop what you do when `signal` is aborted.
   */
  with<T>(name: Locks, work: (lease: Lease, signal: AbortSignal) => T | PromiseLike<T>): Promise<T>;
  with<T>(
    name: Locks,
    options: AcquireOptions,
    work: (lease: Lease, signal: AbortSignal) => T | PromiseLike<T>,
  ): Promise<T>;

  /** Who holds a lock and who waits for it. */
  inspect(name: string): Promise<Lock>;

  /** Who held a lock, from when to when, and how that ended; newest first. */
  history(name: string): Promise<History>;

  /**
   * For a resource that gets a fencing token with a write: resolves if a lease with this fencing token holds the lock, and with `forMs`
   * if the lease lasts for so many milliseconds. Carry the write out only then. Rejects with the code `stale-fencing-token` if no such
   * lease holds the lock, and `ends-too-soon` if the lease ends too soon. Any other error does not say whether the lease lives.
   */
  check(name: string, fence: number, options?: { forMs?: number }): Promise<void>;

  /** A page of the locks that are held. A page may be empty although there are more: go on while there is a `nextCursor`. */
  list(filter?: ListFilter): Promise<Page>;

  /** Takes a lock away from its holder, at once or after `grace`. */
  break(name: string, options: BreakOptions): Promise<HeldLock>;

  /**
   * Releases all leases that were acquired through this client, and ignores what fails. An acquire that waits rejects with the code
   * `closed` and gives its place up. Takes 5 s at most.
   */
  close(): Promise<void>;

  /** The interface of `navigator.locks`, for the locks of the gateway. */
  manager(): Manager;
}

/** What `manager()` returns. */
export interface Manager {
  request<T>(name: string, callback: (lock: ManagedLock | null) => T | PromiseLike<T>): Promise<T>;
  request<T>(name: string, options: ManagerOptions, callback: (lock: ManagedLock | null) => T | PromiseLike<T>): Promise<T>;
  query(): Promise<ManagerSnapshot>;
}

export interface ManagedLock {
  readonly name: string;
  readonly mode: Mode;
  readonly fencingToken: number;
  /** Aborted when the lock is lost or stolen. */
  readonly signal: AbortSignal;
}

export interface ManagerOptions {
  mode?: Mode;
  ifAvailable?: boolean;
  steal?: boolean;
  signal?: AbortSignal;
}

export interface ManagerEntry {
  name: string;
  mode: Mode;
  clientId: string;
}

export interface ManagerSnapshot {
  held: ManagerEntry[];
  pending: ManagerEntry[];
}

export interface Lease {
  /** The lock; of several the first. */
  readonly name: string;
  readonly names: readonly string[];
  /** The secret that renews and releases the lease. */
  readonly token: string;
  /** The number that rises with every grant: send it with each write; of several locks that of the first. */
  readonly fencingToken: number;
  /** The fencing token of each lock. */
  readonly fencingTokens: Readonly<Record<string, number>>;
  /** The mode; of several locks that of the first. */
  readonly mode: Mode;
  /** The mode of each lock. */
  readonly modes: Readonly<Record<string, Mode>>;
  /** The slot, if the lock was acquired with a `limit`; of several locks that of the first. */
  readonly slot: number | undefined;
  readonly slots: Readonly<Record<string, number | undefined>>;
  readonly owner: string | undefined;
  readonly metadata: Readonly<Record<string, string>>;
  readonly ttlMs: number;

  /** Aborted before the lease can be somebody else's, and when it is released. The reason is a `LeaseLost`. */
  readonly signal: AbortSignal;
  /** How long it is certain to last, on the monotonic clock; 0 once it is over. */
  readonly expiresInMs: number;
  /** Resolves when somebody asks for the lock; never, if nobody does. */
  readonly releaseRequested: Promise<ReleaseRequest>;

  /** Throws the `LeaseLost` if the lease is over, also right after the process was suspended. */
  check(): void;
  /**
   * Renews now: for the TTL that it has, or for another one. Retried within what is left. A shorter TTL does not end the lease earlier at
   * the gateway, but once it is answered the client counts on no more than it.
   */
  renew(ttl?: Duration): Promise<void>;
  /**
   * Gives the lock back, within 5 s. Rejects with `LeaseLost` if the lease was lost before, and with `OutcomeUnknown` if an earlier copy
   * of the release got no answer and may have ended the lease. After another failure it may be called again; the client goes on in
   * the background until the lease ends.
   */
  release(): Promise<void>;
  /** Gives the lock back at the end of a block, as `with` does. */
  [Symbol.asyncDispose](): Promise<void>;
}

export interface Holder {
  owner: string | null;
  metadata: Record<string, string>;
  /** `null` for a program that locks in the same store without a gateway. */
  fencingToken: number | null;
  expiresInMs: number | null;
  mode: Mode | null;
  slot: number | null;
  foreign: boolean;
  /** Missing if the lease has none. */
  order?: number;
  /** Why the lease went back to an older order. Missing if it did not. */
  rollback?: string;
  reservation?: { until: string; reason: string; reservedBy: string | null };
  releaseRequested?: Omit<ReleaseRequest, 'name' | 'by'> & { by: string | null };
  /** The lease only keeps the lock for a request for several locks that waits for another one. Missing if it does not. */
  waiting?: true;
}

export interface HolderDetails extends Holder {
  ttlMs: number | null;
  expiresAt: string | null;
  acquiredAt: string | null;
  holdExpiresInMs: number | null;
  foreignMark: string | null;
  group: { first: string | null; count: number } | null;
  /** What a `waiting` holder waits for; in an inspection only. `name` is null if the key may not view that lock. */
  waitsFor?: { name: string | null; sinceMs: number; state: 'held' | 'resting' | 'free' | null; holders: HolderDetails[]; holderCount: number };
}

export interface Waiter {
  position: number;
  owner: string | null;
  mode: Mode;
  limit: number | null;
  waitedMs: number;
  metadata: Record<string, string>;
}

export interface HeldLock {
  name: string;
  /** At most 100, those first that end soonest. */
  holders: HolderDetails[];
  holderCount: number;
  /** What rests after a release, because `minHold` is not over. Missing if nothing rests. */
  resting?: Rest[];
}

/** A lease that was released before its `minHold` was over: until then the lock, or the slot, is granted to nobody. */
export interface Rest {
  fencingToken: number;
  slot: number | null;
  availableInMs: number;
}

export interface Lock extends HeldLock {
  state: 'held' | 'resting' | 'free';
  waiters: Waiter[];
  waiterCount: number;
  /** The highest order for which the lock was granted. Missing if it remembers none. */
  grantedOrder?: number;
  /** The grant for that order, if it is known. */
  orderGranted?: OrderGrant;
}

/** When, with which API key and to which owner a lock was granted. */
export interface OrderGrant {
  at: string;
  by: string | null;
  owner: string | null;
}

export interface History {
  name: string;
  /** The last leases, newest first. */
  entries: HistoryEntry[];
  /** The leases that were too short for entries. */
  shorterLeases: { count: number; since: string } | null;
  /** How many records the gateways have dropped, because the store did not take them in time. */
  dropped: number;
  /** Whether the gateway records leases. If not, there are no entries. */
  enabled: boolean;
}

/** A lease in the history of a lock. Times are texts in RFC 3339. What was not recorded is null. */
export interface HistoryEntry {
  fencingToken: number;
  mode: Mode | null;
  slot: number | null;
  owner: string | null;
  metadata: Record<string, string>;
  /** Missing if the lease had none. */
  order?: number;
  /** Why the lease went back to an older order. Missing if it did not. */
  rollback?: string;
  acquiredAt: string | null;
  /** The name of an API key, or an address. */
  acquiredBy: string | null;
  waitedMs: number | null;
  endedAt: string | null;
  ended: 'released' | 'expired' | 'broken' | 'lost' | null;
  endedBy: string | null;
  reason: string | null;
  /** If no gateway has recorded the end: the lease ended at this time at the latest. */
  endedAtLatest: string | null;
  /** Other events of the lease, such as `release-requested`; oldest first. */
  notes: { kind: string; at: string; by: string | null; reason: string | null }[];
}

export interface ListFilter {
  prefix?: string;
  owner?: string;
  search?: string;
  limit?: number;
  cursor?: string;
}

export interface Page {
  locks: (HeldLock & { waiterCount: number })[];
  nextCursor: string | null;
}

export interface BreakOptions {
  /** Why, for the audit log. */
  reason: string;
  /** Break only the lease with this fencing token. Of a shared lock say this or `all`. */
  fencingToken?: number;
  foreignMark?: string;
  all?: boolean;
  /** Ask the holder to release the lock within this time, and break it then. */
  grace?: Duration;
}

/** A problem document of the gateway, with keys in camel case. */
export interface Problem {
  type?: string;
  title?: string;
  status?: number;
  detail?: string;
  code: string;
  requestId?: string;
  /** With `outdated-order`: the order of the request. */
  order?: number;
  /** With `outdated-order`: the highest order for which the lock was granted. */
  grantedOrder?: number;
  /** With `outdated-order`: the grant for that order, if the key may view the lock. */
  orderGranted?: OrderGrant;
  [field: string]: unknown;
}

/** The gateway refused, or nothing usable was answered. */
export class LatchgateError extends Error {
  /** The HTTP status; 0 if there was no answer. */
  readonly status: number;
  /**
   * What to decide by: `docs/problems.md` lists those of the gateway. Without an answer of the gateway it is `unreachable`,
   * `outcome-unknown`, `lease-lost`, `locked`, `unknown-answer` or `closed`.
   */
  readonly code: string;
  readonly detail: string | undefined;
  readonly problem: Problem | undefined;
}

/** Somebody else holds the lock, and did so for as long as the wait lasted. */
export class LockHeld extends LatchgateError {
  readonly holders: Holder[];
}

/**
 * The lease is over: it was not renewed in time (`expired`), the gateway no longer knows it (`lost`), an operator has ended it or it
 * was not released when somebody asked for it (`broken`), or it was given back (`released`).
 */
export class LeaseLost extends LatchgateError {
  readonly why: 'expired' | 'lost' | 'broken' | 'released';
}

/** The request may have been carried out: no answer came, or one that is not understood, or the store gave none in time. */
export class OutcomeUnknown extends LatchgateError {}

/** No gateway was reached, or its certificate is refused: nothing has happened. A browser does not tell this from a lost answer, and reports both so. */
export class GatewayUnreachable extends LatchgateError {}
