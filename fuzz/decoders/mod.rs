//! What takes bytes from outside, each as a function that any bytes can be given to.
//!
//! A module of the gateway's library, because decoders are private there. `fuzz/` leads a coverage-guided fuzzer to them;
//! the tests beside them try mutations for a few seconds.

#[cfg(test)]
mod hunt;
mod targets;
#[cfg(test)]
mod tests;

pub use targets::{body, name, reply, row};
