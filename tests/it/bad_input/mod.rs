//! What nobody should send, by category: some four thousand cases, each with what must come of it.
//!
//! The oracle is the same for all (`bench`): an answer, half of them within 100 ms, or a closed
//! connection, no 5xx that was not expected, a problem document with a code of the closed list, no
//! lock granted, every lock and every gauge as it was, no panic and no planted secret in the log. The
//! gateway is the real program on the embedded store; a part of the cases runs over Redis as well.
//!
//! A case whose answer is right, and not refused, says so: a corpus of refusals alone would pass a gateway
//! that refuses everything.

mod bench;

mod abrupt;
mod callers;
mod fields;
mod files;
mod framing;
mod redis;
mod requests;
