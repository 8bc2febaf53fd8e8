//! The Redis store against real servers.

mod bounds;
mod chaos;
mod connections;
mod crowded;
mod examination;
mod expected;
mod fences;
mod foreign;
mod hostile;
mod keys;
mod late;
mod leases;
mod refusals;
mod rig;
mod waiting;
