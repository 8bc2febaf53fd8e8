//! `latchgate key`: makes API keys, and shows who may do what.

mod change;
mod list;
mod new;
mod rotate;

pub(super) use list::KeyListArgs;
pub(super) use new::NewArgs;
pub(super) use rotate::RotateArgs;
