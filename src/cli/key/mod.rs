//! `latchgate key`: makes API keys, and shows who may do what.

mod append;
mod command;
mod list;
mod new;
mod table;

pub(super) use append::AppendError;
pub(super) use command::{KeyCommand, key};
