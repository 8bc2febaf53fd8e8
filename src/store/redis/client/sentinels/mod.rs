//! Which server is the master: the sentinels are asked, and what they say is verified.

mod followed;
mod hints;
mod insistence;
mod master;
mod question;
mod report;
mod sentinel;
mod word;

pub(crate) use followed::Followed;
