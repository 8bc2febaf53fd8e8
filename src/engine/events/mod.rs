//! Events: what happens to locks, for whoever listens, here and at the other gateways on the store.
//!
//! Operations publish what they know to the bus. While nobody listens anywhere, that is one atomic load. One task completes an event
//! from what is known of the lease, drops an end that was reported before, and appends to a journal of 8,192 events. A listener is a
//! position in the journal; one that falls too far behind is told `unread` and ends. Events of several gateways have no order except
//! that of arrival.
//!
//! A gateway with a listener announces that every 3 s on `lg:gw:all`, valid for 10 s. The others then send their events on
//! `lg:events`, in batches of 50 ms. A gateway that connects to `lg:gw:all` says `come` and is asked at once.

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
