//! Invalid input by category: some four thousand cases, each with the answer that it must get.
//!
//! The oracle is the same for all (`bench`): an answer, half of them within 100 ms, or a closed connection, no
//! unexpected 5xx, a problem document with a code of the closed list, no lock granted, every lock and every gauge as
//! before, no panic and no planted secret in the log. The gateway is the real program on the embedded store; a part of
//! the cases runs with Redis as well.
//!
//! Valid cases are marked as such: with refusals only, a gateway that refuses everything would pass.

mod bench;

mod abrupt;
mod callers;
mod fields;
mod files;
mod framing;
mod redis;
mod requests;
