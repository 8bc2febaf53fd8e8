//! The faults: their kinds, their schedule, and how they are injected.

mod connections;
mod failovers;
mod fault;
mod injector;
mod plan;
mod processes;
mod quorums;
mod servers;
mod slots;

pub(crate) use fault::Fault;
pub(crate) use injector::Injector;
pub(crate) use plan::Plan;
