//! Tries of attempts: contended, late, given up, and the leases that come of them.

mod contended;
mod doomed;
mod ends;
mod keyed;
mod late;
mod leases;
mod leaving;
