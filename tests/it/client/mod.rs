//! The client against gateways that answer badly, or not at all.

mod answers;
mod fixture;
mod keeping;
mod nonsense;
mod repeats;
mod waiting;
mod with_lock;
