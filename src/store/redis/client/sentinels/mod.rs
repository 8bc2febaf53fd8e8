//! Which server is the master: the sentinels are asked, and what they say is verified.
//!
//! A new connection takes three steps: ask all sentinels, connect to the server with the latest configuration epoch, and verify on
//! that very connection that the server is a master. An epoch earlier than one already followed needs a majority of the sentinels;
//! without that guard, a sentinel that was cut off would lead back to the deposed master. If no sentinel answers, only the same run
//! (`run_id`) of the last master is connected to.
//!
//! Following another master begins with the end of every connection to the old one; nothing more is written to it. The outcome of
//! commands under way is unknown, so they are sent again to the new master, which recognises them if they were replicated. The new
//! subscription signals missed messages, the rounds find another run, and all waiters ask again. What a deposed master grants before
//! that may be forgotten, unless replicas confirmed it (`redis.wait_replicas`).

mod followed_master;
mod sentinel;

pub(crate) use followed_master::FollowedMaster;
