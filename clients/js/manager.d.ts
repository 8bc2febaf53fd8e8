import type { Latchgate, ManagedLock, ManagerOptions, ManagerSnapshot, Mode } from './index.js';

/** What a callback is given. */
export class Lock implements ManagedLock {
  private constructor();
  readonly name: string;
  readonly mode: Mode;
  readonly fencingToken: number;
  readonly signal: AbortSignal;
}

/** The interface of `navigator.locks`, for the locks of a gateway. */
export class LockManager {
  constructor(client: Latchgate, options?: { owner?: string });
  request<T>(name: string, callback: (lock: Lock | null) => T | PromiseLike<T>): Promise<T>;
  request<T>(name: string, options: ManagerOptions, callback: (lock: Lock | null) => T | PromiseLike<T>): Promise<T>;
  query(): Promise<ManagerSnapshot>;
}
