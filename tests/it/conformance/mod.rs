//! The promises of every store: one case for each rule, run on each store.

mod attempts;
mod differential;
mod fixture;
mod groups;
mod history;
mod late;
mod leases;
mod list;
mod model;
mod order;
mod paths;
mod prelude;
mod random;
mod sharing;
mod stores;
mod told;
mod waiting;

pub(crate) use fixture::Fixture;
