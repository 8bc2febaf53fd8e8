//! `latchgate key`: makes, rotates and lists API keys.

mod change;
mod list;
mod new;
mod rotate;

pub(super) use list::KeyListArgs;
pub(super) use new::NewArgs;
pub(super) use rotate::RotateArgs;
