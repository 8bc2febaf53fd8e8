//! A call of each script, with a wrapper that knows the positions.

mod break_lock;
mod confirm;
mod learn;
mod ratify;
mod release;
mod renew;
mod replay;
mod reserve;
mod view;
mod withdraw;

pub(super) use break_lock::{NodeBreak, NodeTarget};
pub(super) use learn::{LearnState, TeachReply};
pub(super) use ratify::Ratification;
pub(super) use release::NodeRelease;
pub(super) use replay::{ReplayReply, ReplayRequest};
pub(super) use reserve::ReserveRequest;
pub(super) use view::NodeView;
pub(super) use withdraw::Withdrawal;
