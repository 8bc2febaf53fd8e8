//! Generated text that is committed (`BLESS=1` rewrites it), and what texts say of the source and of each other.

mod faults;
mod generated;
mod links;
