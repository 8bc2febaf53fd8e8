//! Finds the master: asks the sentinels, and verifies the server that they name.
//!
//! A new connection takes three steps: ask all sentinels, connect to the server that most of them name, and verify on
//! this connection that the server is a master. An epoch earlier than one already followed needs a majority of all
//! sentinels; without that guard, a sentinel that was cut off would lead back to the deposed master. If fewer sentinels
//! name the last master, or none answers, the gateway connects only to the same run (`run_id`) of the last master.
//!
//! Before the gateway follows another master, it ends every connection to the old one; nothing more is written to it.
//! The outcome of commands under way is unknown, so they are sent again to the new master, which recognises them if
//! they were replicated. The new subscription reports that messages may have been missed, the periodic sweep finds
//! another run of the server, and all waiters ask again. Leases that a deposed master grants before that may be lost,
//! unless replicas confirmed them (`redis.wait_replicas`).

mod disagreement;
mod followed_master;
mod sentinel;

pub(crate) use followed_master::FollowedMaster;
