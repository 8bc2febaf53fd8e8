//! The faults: which there are, when they strike, and how.

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
