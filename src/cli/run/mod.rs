//! `latchgate run`: runs a command only while a lock is held.

mod args;
mod execute;
mod foreground;
mod guard;
mod job;
mod supervisor;

pub(super) use args::RunArgs;
pub(super) use execute::run;
pub(super) use guard::{guard, is_guard};
pub(super) use job::{is_start, start};
