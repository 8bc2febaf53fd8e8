//! `latchgate key`: makes, rotates and lists API keys, tests which ID tokens match them, and ends exchanged keys.

mod change;
mod list;
mod new;
mod revoke;
mod rotate;
mod test;

pub(super) use list::KeyListArgs;
pub(super) use new::NewArgs;
pub(super) use revoke::RevokeArgs;
pub(super) use rotate::RotateArgs;
pub(super) use test::TestArgs;
