//! Imports that nearly every invariant needs.

pub(super) use super::super::{
    History, Report, Terms,
    faults::RECOVERY,
    lease::{BACKSTOP, Lease},
    line::{AFTERWARDS, Ask, Mode, Past, RecordedAnswer, Resource, Seen},
    op::{CLOCKS, MS, NEVER, Op, OpOutcome},
    read::{Lock, Observation},
    report::Invariant,
    spans::{Span, union, without},
};
