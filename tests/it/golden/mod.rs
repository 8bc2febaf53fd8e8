//! Generated text that is committed (`BLESS=1` rewrites it), and what texts say of the source and of each other.

mod configuration;
mod faults;
mod help;
mod links;
mod metrics;
