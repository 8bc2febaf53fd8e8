//! The tries of attempts: contended, late and abandoned tries, and the leases that come from them.

mod contended;
mod doomed;
mod ends;
mod keyed;
mod late;
mod leases;
mod leaving;
