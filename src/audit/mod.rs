//! The audit log: who broke a lock, who was refused, and which API keys were valid when.
//!
//! The audit log never stops the service. Lines that cannot be written are lost; the ordinary log says so, and so does
//! readiness until a line is written again. The audit log contains no secret.

mod bounds;
mod event;
mod log;
mod writer;

pub use event::{
    AuditedLease, BreakAttempt, OrderAttempt, Refused, ReloadedKeys, Requester, Reserved,
};
pub use log::{Audit, AuditError};
