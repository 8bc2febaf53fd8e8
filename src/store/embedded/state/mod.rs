//! The state of the embedded store in memory: leases, queues and tombstones, and what every operation does to them.

mod held;
mod highest_order;
mod lease;
mod list;
mod memory;
mod operations;
mod order;
mod queue;

pub(super) use highest_order::{HighestOrder, Memory, OrderedGrant};
pub(super) use lease::{
    Delay, Lease, LeaseDelivery, LeaseEnds, LeaseKey, LeaseRequest, Moment, Rest, WallClock,
};
pub(super) use list::{ListProgress, PageBuilder};
pub(super) use memory::{CopyCursor, Shortage, State};
pub(super) use queue::UndeliveredGrant;
