//! Sockets: accepts connections, bounds what each may cost, and speaks HTTP on them.
//!
//! **In.** A semaphore bounds the connections; connections beyond the limit are refused. hyper speaks HTTP,
//! after TLS if that is on. One timer per connection bounds its idle time and the time for a head.
//! `TCP_USER_TIMEOUT` ends a connection whose peer acknowledges nothing; HTTP/2 pings do so within ten
//! seconds.
//!
//! **Out.** The body of a grant carries a `Delivery` guard, which the connection takes over with the last
//! frame, and which the next write disarms. Right before that write, the socket checks whether the caller has
//! hung up; if so, the write fails and the connection ends. A guard that is dropped hands the lease to the
//! reaper.

mod accept;
mod connection;
mod detached;
mod in_flight;
mod protocol;
mod request_handler;
mod socket;

pub use accept::serve;
pub(super) use connection::{Connection, LongRequestPermit, peer};
pub(super) use detached::UnansweredReleases;
pub use in_flight::InFlightRequests;
