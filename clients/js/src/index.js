// Client of the Latchgate lock gateway.
export { Latchgate } from './client.js';
export { GatewayUnreachable, LatchgateError, LeaseLost, LockHeld, OutcomeUnknown } from './errors.js';
