// The errors of the client.

/** The gateway refused the request, or its answer cannot be used. */
export class LatchgateError extends Error {
  constructor(message, { status = 0, problem, code = problem?.code, cause } = {}) {
    super(message, cause && { cause });
    this.status = status;
    this.code = code ?? this.code;
    this.detail = problem?.detail;
    this.problem = problem;
  }
}

/** Other callers held the lock until the wait was over. */
export class LockHeld extends LatchgateError {
  get holders() {
    return this.problem?.holders ?? [];
  }
}

/** The lease has ended. `why` says how: 'expired', 'lost', 'broken' or 'released'. */
export class LeaseLost extends LatchgateError {
  constructor(message, details) {
    super(message, details);
    this.why = details.why;
  }
}

/** The outcome of the request is unknown: it may have been carried out. */
export class OutcomeUnknown extends LatchgateError {}

/** No gateway was reached, as far as the runtime can tell. */
export class GatewayUnreachable extends LatchgateError {}

// Names and codes are set here, because a minifier renames classes, and some errors have no problem with a code.
const describe = (Class, name, code) => Object.assign(Class.prototype, { name, code });
describe(LatchgateError, 'LatchgateError', 'unknown-answer');
describe(LockHeld, 'LockHeld', 'locked');
describe(LeaseLost, 'LeaseLost', 'lease-lost');
describe(OutcomeUnknown, 'OutcomeUnknown', 'outcome-unknown');
describe(GatewayUnreachable, 'GatewayUnreachable', 'unreachable');

/** Describes in words who holds a lock. */
function heldBy({ name, holders, holderCount, availableInMs }, names) {
  name ??= names.join(', ');
  if (availableInMs !== undefined) return `${name} rests for another ${availableInMs} ms`;
  const { owner, reservation } = holders?.[0] ?? {};
  if (reservation) {
    const { until, reason, reservedBy } = reservation;
    return `${name} is reserved${reservedBy ? ` by ${reservedBy}` : ''} until ${until} because ${reason}`;
  }
  const who = owner ?? 'somebody';
  return `${name} is held by ${who}${holderCount > 1 ? ` and ${holderCount - 1} more` : ''}`;
}

/** The error for an answer without success, or for a success whose document does not follow the API. */
export function refusal({ status, ok, body, location }, Failure, names) {
  const problem = body?.code ? body : undefined;
  const held = names && problem?.code === 'locked' && heldBy(problem, names);
  // The query and the password of a redirect's target are left out, because they may be secrets.
  const redirect = location ? `: a redirect to ${location.replace(/[?#].*/, '').replace(/^(\w*:?\/\/)[^/]*@/, '$1')}, not followed` : '';
  const other = ok && names && typeof body?.name === 'string' && !names.includes(body.name);
  const text = other ? `the answer is about the lock ${body.name}, not ${names}: a proxy changed the path` : held || (problem?.detail ?? problem?.title ?? problem?.code ?? `the answer (status ${status}) is not understood${redirect}`);
  Failure ??=
    status === 423 ? LockHeld : problem?.code === 'lease-lost' ? LeaseLost : ok || status === 504 ? OutcomeUnknown : LatchgateError;
  // Only the text of the problem says whether the lease was broken or ended otherwise.
  const why = /was broken/.test(text) ? 'broken' : 'lost';
  return new Failure(text, { status, problem, code: ok ? 'unknown-answer' : undefined, why });
}
