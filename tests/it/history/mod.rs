//! The checker: reads a history, which clients, resources and the fault injector wrote during a run, and reports each
//! promise of the product that the run broke.
//!
//! The checker knows of the program only what a caller sees. `scripts/torture` makes histories, and `tests/it/checker`
//! shows that each invariant reports the mistakes that it is there for.

mod check;
mod faults;
mod invariants;
mod lease;
mod line;
mod op;
mod read;
mod report;
mod spans;
mod terms;
mod validity;

pub(crate) use check::check;
pub(crate) use line::{
    AFTERWARDS, Ask, Event, Line, Mode, Past, RecordedAnswer, Reserve, Resource, ResourceWrite,
    Seen, Stage,
};
pub(crate) use read::History;
pub(crate) use report::{Invariant, Report, Violation};
pub(crate) use terms::Terms;
