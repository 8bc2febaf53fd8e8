//! The scripts: for each one its text and a typed wrapper that knows the positions.

mod acquire;
mod advance;
mod break_lock;
mod confirm;
mod contention;
mod give_back;
mod hex;
mod inspect;
mod lapse;
mod leave;
mod list;
mod news;
mod probe;
mod queueing;
mod record;
mod release;
mod renew;
mod reply;
mod script;

pub(super) use advance::Advance;
pub(super) use break_lock::{Meant, Struck};
pub(super) use give_back::{Knowledge, TakenBack};
pub(super) use hex::token_hash;
pub(super) use list::Seen;
pub(super) use news::Heard;
pub(super) use probe::{Permission, Probed};
pub(super) use record::{RECORD_LAYOUT, TOLD, told_lease};
pub(super) use reply::Reply;
pub(super) use script::{Script, Scripts};
