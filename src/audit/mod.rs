//! The audit log: who broke a lock, who was refused, which keys counted when.
//!
//! It never stops the service: what cannot be written is counted, told in the readiness report, and
//! noted in the log itself as soon as that can be written again. No secret is ever in it.

mod bounds;
mod event;
mod log;
mod writer;

pub use event::{BreakAttempt, Refused, ReloadedKeys, Requester};
pub use log::{Audit, AuditError};
