//! Which server is the master: the sentinels are asked, and what they say is verified.

mod followed_master;
mod master;
mod question;
mod report;
mod sentinel;

pub(crate) use followed_master::FollowedMaster;
