//! Events: what happens to locks, for whoever listens, here and at the other gateways on the store.

mod audience;
mod bus;
mod check;
mod ear;
mod ended;
mod event;
mod journal;
mod line;
mod listener;
mod outbox;
mod take_in;
mod tell;
mod teller;
#[cfg(test)]
mod tests;
mod tracker;

pub(in crate::engine) use bus::Bus;
pub use event::{Event, EventKind};
pub use listener::{Heard, ListenError, Listener};
