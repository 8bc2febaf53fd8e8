//! Tests of the checker: short histories, written by hand, some of which break a promise and some only nearly do.

mod fences;
mod leases;
mod never_back;
mod no_mutants;
mod sharing;
mod story;
mod validity;
mod waiting;
