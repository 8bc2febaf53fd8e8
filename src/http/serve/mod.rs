//! Sockets: accepts connections, bounds what each may cost, and speaks HTTP on them.

mod accept;
mod connection;
mod descriptors;
mod detached;
mod in_flight;
mod peer_end;
mod protocol;
mod request_handler;
mod socket;
mod trailing_end;
mod unsettled;

pub use accept::serve;
pub(super) use connection::{AnsweredOn, LongRequestPermit, LongRequests, UserTimeout, peer};
pub(super) use detached::UnansweredReleases;
pub use in_flight::InFlightRequests;
