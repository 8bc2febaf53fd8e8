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

pub(super) use break_lock::{Struck, Target};
pub(super) use learn::{Lesson, Standing};
pub(super) use ratify::Ratification;
pub(super) use release::Parting;
pub(super) use replay::{Replayed, Replaying};
pub(super) use reserve::Wish;
pub(super) use view::Seen;
pub(super) use withdraw::Withdrawal;
