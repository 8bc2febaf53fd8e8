//! The quorum store on real servers.

mod faults;
mod logins;
pub(crate) mod nodes;
mod prelude;
mod refusals;
mod rig;
mod schedules;
mod served;
mod split;
mod tries;
mod votes;
