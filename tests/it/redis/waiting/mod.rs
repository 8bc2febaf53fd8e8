//! Waiting in queues that several gateways share on one Redis.

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
