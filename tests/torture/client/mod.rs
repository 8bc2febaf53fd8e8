//! The process of clients, which can be killed and frozen like any other.

mod cooperating;
mod exchange;
mod group_exchange;
mod hanging_up;
mod holding;
mod misuse;
mod ordering;
mod process;
mod recording;
mod reserving;
mod turns;
mod visits;
mod worker;

pub(crate) use process::{COMMAND, Call, LOCKS, SHARED, run};
pub(crate) use recording::recall_all;
