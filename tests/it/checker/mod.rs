//! The checker is checked: short histories, written by hand, of which some break a promise and some just
//! do not.

mod fences;
mod leases;
mod no_mutants;
mod sharing;
mod story;
mod validity;
mod waiting;
