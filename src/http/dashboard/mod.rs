//! The admin page: its files are in the binary, and it uses the API that everybody uses.

mod files;
mod page;
mod serve;

pub(super) use page::IndexPage;
pub(super) use serve::{__path_dashboard, below, dashboard};
