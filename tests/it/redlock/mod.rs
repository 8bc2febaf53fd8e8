//! The Redlock store against real servers.

mod clocks;
mod contended;
mod delayed;
mod doomed;
mod ends;
mod faults;
mod fences;
mod keepers;
mod keyed;
mod late;
mod learning;
mod leases;
mod leaving;
mod listed;
mod logins;
mod majority;
mod many_names;
pub(crate) mod nodes;
mod partition;
mod power_loss;
mod refusing;
mod rig;
mod schedules;
mod served;
mod slow;
mod split;
mod tls;
