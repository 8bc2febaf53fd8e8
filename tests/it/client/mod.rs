//! The Rust client against gateways that answer wrongly, late, or not at all.

mod answers;
mod keeping;
mod order;
mod repeats;
mod waiting;
