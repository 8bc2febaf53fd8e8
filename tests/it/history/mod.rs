//! The checker: reads what clients, a resource and a fault injector have written down of a run, and
//! says whether what the product promises has held.
//!
//! It knows nothing of the program but what a caller sees. `scripts/torture` makes histories, and
//! `tests/it/checker` shows that every invariant finds what it is there for.

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
    Ask, Event, Line, Mode, RecordedAnswer, Resource, ResourceWrite, Seen, Stage,
};
pub(crate) use read::History;
pub(crate) use report::{Invariant, Report, Violation};
pub(crate) use terms::Terms;
