// Client of the Latchgate lock gateway: distributed locks over HTTP.
export { Latchgate } from './client.js';
export { GatewayUnreachable, LatchgateError, LeaseLost, LockHeld, OutcomeUnknown } from './errors.js';
