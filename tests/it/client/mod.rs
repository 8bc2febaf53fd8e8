//! The client against gateways that answer badly, or not at all.

mod answers;
mod keeping;
mod repeats;
mod waiting;
