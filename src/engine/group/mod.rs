//! Several locks that are taken as one: all or none, with one token.
//!
//! The stores know nothing of groups. Each part is an ordinary lease, and the engine takes one after the other.

mod acquire;
mod collect;
mod collection;
mod hang_up;
mod request;

pub use request::{GrantedGroup, GroupAcquireError, GroupRequest};
