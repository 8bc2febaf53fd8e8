//! Output of commands for people, and signals to commands.

pub(super) mod output;
pub(super) mod signals;
pub(super) mod text;
pub(super) mod waiting;

pub(super) use crate::invisible_chars::escape_controls as visible;
