//! The scripts: for each one its text and a typed wrapper that knows the positions.

mod acquire;
mod give_back;
mod inspect;
mod probe;
mod record;
mod release;
mod renew;
mod reply;
mod script;

pub(super) use probe::{Permission, Probed};
pub(super) use reply::Reply;
pub(super) use script::{Script, Scripts};
