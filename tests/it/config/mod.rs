//! The configuration as `latchgate serve` would have it.

mod files;
mod refusals;
