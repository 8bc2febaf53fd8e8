//! Functions that call the decoders of bytes from outside: each accepts any bytes.
//!
//! A module of the gateway's library, because its decoders are private. The fuzz targets in `fuzz/` call these functions
//! with a coverage-guided fuzzer; the tests in this folder try mutations for a few seconds.

#[cfg(test)]
mod hunt;
mod targets;
#[cfg(test)]
mod tests;

pub use targets::{body, name, reply, row, token};
