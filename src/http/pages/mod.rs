//! What browsers and people are shown, from the binary.

mod dashboard;
mod docs;
mod file;

pub(super) use dashboard::{__path_dashboard, below, dashboard};
pub(super) use docs::{__path_docs, __path_index, asset, docs, index};
pub(super) use file::{File, lists};
