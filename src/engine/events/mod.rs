//! Events: what happens to locks, for whoever listens, here and at the other gateways on the store.

mod bus;
mod check;
mod event;
mod ingest;
mod journal;
mod line;
mod listener;
mod outbox;
mod publish;
mod recent_ends;
mod subscribers;
mod subscription;
#[cfg(test)]
mod tests;
mod tracker;
mod withheld;

pub use event::{Event, EventKind};
pub use listener::{ListenError, Listener, ListenerItem};

pub(in crate::engine) use bus::Bus;
