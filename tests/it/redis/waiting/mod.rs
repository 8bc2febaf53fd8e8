//! Queues that several gateways share on one Redis server.

mod bounds;
mod dead;
mod faults;
pub(crate) mod gate;
mod keyed;
mod late;
mod lost_places;
mod order;
mod rules;
mod sharing;
