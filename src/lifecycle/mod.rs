//! Who may start a task, on which thread it runs, and how the program stops.

mod tasks;
mod workers;

pub use tasks::{Lifecycle, TasksLeft};
pub use workers::{RunningWorkers, Seat, Worker, Workers};
