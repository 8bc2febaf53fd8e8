//! The audit log: who broke a lock, who was refused, and which API keys were valid when.
//!
//! The audit log never stops the service. Lines that cannot be written are counted, reported by readiness, and
//! noted in the log as soon as it can be written again. The audit log contains no secret.

mod bounds;
mod event;
mod log;
mod writer;

pub use event::{BreakAttempt, Refused, ReloadedKeys, Requester};
pub use log::{Audit, AuditError};
