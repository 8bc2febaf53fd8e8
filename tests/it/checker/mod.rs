//! The checker is checked: short histories, written by hand, of which some break a promise and some just
//! do not.

mod exclusion;
mod fences;
mod groups;
mod liveness;
mod no_mutants;
mod order;
mod requests;
mod sharing;
mod story;
mod validity;
