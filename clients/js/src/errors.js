// What can go wrong.

/** The gateway refused, or nothing usable was answered. */
export class LatchgateError extends Error {
  constructor(message, { status = 0, problem, code = problem?.code, cause } = {}) {
    super(message, cause && { cause });
    this.status = status;
    this.code = code ?? this.code;
    this.detail = problem?.detail;
    this.problem = problem;
  }
}

/** Somebody else holds the lock, and did so for as long as the wait lasted. */
export class LockHeld extends LatchgateError {
  get holders() {
    return this.problem?.holders ?? [];
  }
}

/** The lease is over. `why`: 'expired', 'lost', 'broken' or 'released'. */
export class LeaseLost extends LatchgateError {
  constructor(message, details) {
    super(message, details);
    this.why = details.why;
  }
}

/** It may have happened. */
export class OutcomeUnknown extends LatchgateError {}

/** No gateway was reached, as far as the runtime tells. */
export class GatewayUnreachable extends LatchgateError {}

// A minifier renames classes, and not every error comes with a problem that has a code.
const describe = (Class, name, code) => Object.assign(Class.prototype, { name, code });
describe(LatchgateError, 'LatchgateError', 'unknown-answer');
describe(LockHeld, 'LockHeld', 'locked');
describe(LeaseLost, 'LeaseLost', 'lease-lost');
describe(OutcomeUnknown, 'OutcomeUnknown', 'outcome-unknown');
describe(GatewayUnreachable, 'GatewayUnreachable', 'unreachable');

/** Who holds a lock, for people. */
function heldBy({ name, holders, holderCount }, names) {
  const who = holders?.[0]?.owner ?? 'somebody';
  return `${name ?? names.join(', ')} is held by ${who}${holderCount > 1 ? ` and ${holderCount - 1} more` : ''}`;
}

/** The error for an answer that is no success, or for a success that says something else than the contract. */
export function refusal({ status, ok, body, location }, Failure, names) {
  const problem = body?.code ? body : undefined;
  const held = names && problem?.code === 'locked' && heldBy(problem, names);
  // The query and the password of a location may be secrets.
  const redirect = location ? `: a redirect to ${location.replace(/[?#].*/, '').replace(/^(\w*:?\/\/)[^/]*@/, '$1')}, which is not followed` : '';
  const text = held || (problem?.detail ?? problem?.title ?? problem?.code ?? `the answer (status ${status}) is not understood${redirect}`);
  Failure ??=
    status === 423 ? LockHeld : problem?.code === 'lease-lost' ? LeaseLost : ok || status === 504 ? OutcomeUnknown : LatchgateError;
  // Only the text tells a break from another end.
  const why = /was broken/.test(text) ? 'broken' : 'lost';
  return new Failure(text, { status, problem, code: ok ? 'unknown-answer' : undefined, why });
}
