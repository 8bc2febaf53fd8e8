// What can go wrong.

/** The gateway refused, or nothing usable was answered. */
export class LatchgateError extends Error {
  constructor(message, { status = 0, problem, cause } = {}) {
    super(message, cause && { cause });
    this.name = new.target.name;
    this.status = status;
    this.code = problem?.code;
    this.detail = problem?.detail;
    this.problem = problem;
  }
}

/** Somebody else holds the lock, and did so for as long as the wait lasted. */
export class LockHeld extends LatchgateError {
  get holders() {
    return this.problem.holders ?? [];
  }
}

/** The lease is over. `why`: 'expired', 'lost', 'broken' or 'released'. */
export class LeaseLost extends LatchgateError {
  constructor(why, message, details) {
    super(message, details);
    this.why = why;
  }
}

/** It may have happened. */
export class OutcomeUnknown extends LatchgateError {}

/** No gateway was reached, as far as the runtime tells. */
export class GatewayUnreachable extends LatchgateError {}

/** The error for an answer that is no success. */
export function refusal({ status, body }) {
  const problem = body?.code ? body : undefined;
  const text = problem?.detail ?? problem?.title ?? `the gateway answered with status ${status}`;
  const details = { status, problem };
  if (status === 423) return new LockHeld(text, details);
  if (problem?.code === 'lease-lost') return new LeaseLost('lost', text, details);
  if (status === 504) return new OutcomeUnknown(text, details);
  return new LatchgateError(text, details);
}
