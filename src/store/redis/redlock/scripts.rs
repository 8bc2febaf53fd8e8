//! The scripts that only the nodes of a quorum run.

use super::super::{
    channels::Channels, client::script_call::ScriptCall, keys::Keys, scripts::Script,
};

/// The scripts that only the nodes of a quorum run. What else they run is the same as on one server.
#[derive(Debug)]
pub(super) struct QuorumScripts {
    pub(super) reserve: Script,
    pub(super) ratify: Script,
    pub(super) replay: Script,
    pub(super) renew: Script,
    pub(super) confirm: Script,
    pub(super) release: Script,
    pub(super) withdraw: Script,
    pub(super) break_lock: Script,
    pub(super) view: Script,
    pub(super) learn: Script,
    pub(super) teach: Script,
    pub(super) admit: Script,
}

// === impl QuorumScripts ===

impl QuorumScripts {
    pub(super) fn new(channels: &Channels) -> Self {
        let publishing = |text, keys| Script::publishing(text, keys, channels);
        Self {
            reserve: Script::new(include_str!("lua/reserve.lua"), 6),
            ratify: Script::new(include_str!("lua/ratify.lua"), 5),
            replay: Script::new(include_str!("lua/replay.lua"), 3),
            renew: Script::new(include_str!("lua/quorum_renew.lua"), 3),
            confirm: Script::new(include_str!("lua/quorum_confirm.lua"), 3),
            release: publishing(include_str!("lua/quorum_release.lua"), 4),
            withdraw: publishing(include_str!("lua/withdraw.lua"), 4),
            break_lock: publishing(include_str!("lua/quorum_break.lua"), 4),
            view: Script::new(include_str!("lua/view.lua"), 2),
            learn: Script::new(include_str!("lua/learn.lua"), 1),
            teach: Script::new(include_str!("lua/teach.lua"), 1),
            admit: Script::new(include_str!("lua/admit.lua"), 1),
        }
    }
}

// === Lease keys ===
//
// The keys of a lease, as the scripts are given them.

/// Lock, record and memories of ended leases. Every script that changes a lease takes them as its first
/// three keys.
pub(super) fn fill_lease_keys<'a>(command: &'a mut ScriptCall, keys: &Keys) -> &'a mut ScriptCall {
    command.arg(keys.lock()).arg(keys.info()).arg(keys.ended())
}
