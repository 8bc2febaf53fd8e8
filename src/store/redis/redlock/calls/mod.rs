//! A call of each script, with a wrapper that knows the positions.

mod release;
mod renew;
mod reserve;
mod view;

pub(super) use release::{NodeBreak, NodeRelease, NodeTarget, Withdrawal};
pub(super) use reserve::{Ratification, ReserveRequest};
pub(super) use view::{NodeView, ReplayReply, ReplayRequest};
