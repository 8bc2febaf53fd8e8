//! Generated text that is committed. `BLESS=1` rewrites it.

mod configuration;
mod help;
mod metrics;
