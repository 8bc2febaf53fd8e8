//! The numbers of one gateway, for pages that show them.

mod show;
mod stats_body;

pub(super) use show::{__path_stats, stats};
