//! The route `/events`: what happens to locks, for whoever listens.

mod event_body;
mod events_query;
mod last_event_id;
mod listen;
mod stream;

pub(super) use listen::{__path_events, events};
