//! Events: reports of changes to locks, for listeners at this and at the other gateways on the store.
//!
//! Operations publish what they know to the bus. Without any listener, publishing costs one atomic load. One task
//! completes an event from the known data of the lease, drops a grant that was reported before, and appends the event
//! to a journal of 8,192 events. A listener is a position in the journal; a listener that falls too far behind is
//! told `unread` and ends. Events have no order except that of arrival; readers sort them by fencing token.
//!
//! A gateway with a listener announces its interest every 3 s on `lg:gw:all`, valid for 10 s. All gateways, this one
//! included, then send their events on `lg:events`, in batches of 50 ms, so each gateway hears of the ends of its leases.
//! A gateway that connects to `lg:gw:all` says `come` and is asked at once.

mod bus;
mod event;
mod known_leases;
mod listener;
mod publisher;
mod relay;
mod subscribers;
#[cfg(test)]
mod tests;

pub use event::{Event, EventKind};
pub use listener::{ListenError, Listener, ListenerItem};

pub(in crate::engine) use bus::Bus;
pub(in crate::engine) use publisher::Publisher;
