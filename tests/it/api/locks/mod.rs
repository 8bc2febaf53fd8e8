//! The operations on locks.

mod acquire;
mod breaks;
mod checks;
mod contended;
mod declared;
mod group;
mod history;
mod hold;
mod late_releases;
mod lease;
mod look;
mod orders;
mod requests;
mod reservations;
mod rests;
mod shared;
mod waiting;
