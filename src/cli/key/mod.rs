//! `latchgate key`: makes API keys, and shows who may do what.

mod command;
mod list;
mod new;
mod table;

pub(super) use command::{KeyCommand, key};
