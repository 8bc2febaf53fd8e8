//! Which master of a cluster has a slot: the masters are asked, and the later word counts.

mod layout;
mod members;
mod question;
mod report;
mod view;
mod watch;

pub(crate) use members::Cluster;
