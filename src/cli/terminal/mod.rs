//! The terminal of a command: output for people, and signals.

pub(super) mod output;
pub(super) mod signals;
pub(super) mod text;
pub(super) mod waiting;

pub(super) use crate::invisible_chars::escape_controls as visible;
