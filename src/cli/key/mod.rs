//! `latchgate key`: makes API keys, and shows who may do what.

mod change;
mod command;
mod list;
mod new;
mod rotate;

pub(super) use change::KeysChangeError;
pub(super) use command::{KeyCommand, key};
