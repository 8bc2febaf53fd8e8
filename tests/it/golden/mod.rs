//! Generated text that is committed (`BLESS=1` rewrites it), and what texts say of the source.

mod configuration;
mod faults;
mod help;
mod metrics;
