//! Generated texts that are committed (`BLESS=1` rewrites them), and texts that must agree with the source and with
//! each other.

mod faults;
mod generated;
mod links;
