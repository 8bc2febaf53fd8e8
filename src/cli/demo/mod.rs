//! `latchgate demo`: a gateway on a temporary store, with a simulated team that uses its locks.

mod command;
mod past;
mod team;

pub(super) use command::{DemoArgs, demo};
