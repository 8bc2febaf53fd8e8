//! `latchgate run`: a command that runs while a lock is held, and never without.

mod args;
mod execute;
mod group;
mod guard;
mod guard_process;
mod job;
mod orphans;
mod release_lock;
mod start_process;
mod stopping;
mod supervisor;
mod terminal;
mod timing;

pub(super) use args::RunArgs;
pub(super) use execute::{code_of_signal, run};
pub(super) use guard_process::{guard, is_guard};
pub(super) use start_process::{is_start, start};
