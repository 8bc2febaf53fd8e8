//! The queues in Redis as this gateway sees them: who waits here, what scripts and messages tell, and what is due when.

pub(super) mod departures;
mod extensions;
pub(super) mod gateway;
pub(super) mod lost_waiters;
pub(super) mod queue_maintenance;
pub(super) mod relay;
pub(super) mod rounds;
pub(super) mod timers;
