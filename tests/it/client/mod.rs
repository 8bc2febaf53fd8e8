//! The client against gateways that answer badly, or not at all.

mod answers;
mod fixture;
mod keeping;
mod repeats;
mod waiting;
mod with_lock;
