//! The scripts of a quorum, the parts that they share, and the arguments that several of them take.

use std::time::Duration;

use crate::{lock::Token, store::contract::Idempotency};

use super::super::{
    client::{Command, Parts, REQUEST, Script, hex},
    gateways::Channels,
    history::HistoryScripts,
    keys::Keys,
};

/// The scripts that the nodes of a quorum run. The nodes also run `quorum_probe.lua`.
#[derive(Debug)]
pub(super) struct QuorumScripts {
    pub(super) reserve: Script,
    pub(super) ratify: Script,
    pub(super) replay: Script,
    pub(super) renew: Script,
    pub(super) confirm: Script,
    pub(super) release: Script,
    pub(super) restore: Script,
    pub(super) withdraw: Script,
    pub(super) break_lock: Script,
    pub(super) ask: Script,
    pub(super) view: Script,
    pub(super) ended: Script,
    pub(super) learn: Script,
    pub(super) teach: Script,
    pub(super) admit: Script,
    pub(super) history: HistoryScripts,
}

/// The Lua parts that the scripts of a quorum share, by the names under which scripts import them.
const PARTS: &Parts = &Parts {
    numbers: [("", 0); 2],
    texts: &[
        ("adopt", include_str!("lua/parts/adopt.lua")),
        ("copied", include_str!("lua/parts/copied.lua")),
        ("recipient", include_str!("lua/parts/recipient.lua")),
        ("memory", include_str!("lua/parts/memory.lua")),
        ("propose", include_str!("lua/parts/propose.lua")),
        ("record", include_str!("lua/parts/record.lua")),
        ("settle", include_str!("lua/parts/settle.lua")),
        ("lease_reply", include_str!("lua/parts/lease_reply.lua")),
        ("time", include_str!("lua/parts/time.lua")),
        ("vote", include_str!("lua/parts/vote.lua")),
        ("publish_free", include_str!("lua/parts/publish_free.lua")),
    ],
    fields: &[&REQUEST],
};

// === impl QuorumScripts ===

impl QuorumScripts {
    pub(super) fn new(channels: &Channels) -> Self {
        let publishing = |text, keys| Script::publishing(text, keys, PARTS, &channels.all);
        Self {
            reserve: Script::new(include_str!("lua/reserve.lua"), 6, PARTS),
            ratify: Script::new(include_str!("lua/ratify.lua"), 5, PARTS),
            replay: Script::new(include_str!("lua/replay.lua"), 3, PARTS),
            renew: Script::new(include_str!("lua/quorum_renew.lua"), 3, PARTS),
            confirm: Script::new(include_str!("lua/quorum_confirm.lua"), 3, PARTS),
            release: publishing(include_str!("lua/quorum_release.lua"), 4),
            restore: Script::new(include_str!("lua/restore.lua"), 4, PARTS),
            withdraw: publishing(include_str!("lua/withdraw.lua"), 4),
            break_lock: publishing(include_str!("lua/quorum_break.lua"), 4),
            ask: publishing(include_str!("lua/quorum_ask.lua"), 3),
            view: Script::new(include_str!("lua/view.lua"), 2, PARTS),
            ended: Script::new(include_str!("lua/ended.lua"), 1, PARTS),
            learn: Script::new(include_str!("lua/learn.lua"), 1, PARTS),
            teach: Script::new(include_str!("lua/teach.lua"), 1, PARTS),
            admit: Script::new(include_str!("lua/admit.lua"), 1, PARTS),
            history: HistoryScripts::new("PEXPIREAT"),
        }
    }
}

// === Keys ===
//
// Keys that only the nodes of a quorum have, and the keys of a lease in the order of the scripts.

// === impl Keys ===

impl Keys {
    /// Key that stores which fence a node has learnt, and in which life of its data.
    pub(super) const NODE: &str = "lg:{}:node";

    /// The keys that the scripts read for a lock, with their types, to find a key that another program wrote.
    pub(super) fn of_node(&self, _echo: &str) -> Vec<(String, &'static str)> {
        vec![
            (self.lock().to_owned(), "string"),
            (self.fence().to_owned(), "string"),
            (self.of_name("info"), "hash"),
            (self.of_name("ended"), "zset"),
            (Self::NODE.to_owned(), "hash"),
        ]
    }
}

/// Appends the keys of the lock, of its record and of the memories of ended leases. Every script that changes a lease
/// takes them as its first three keys.
pub(super) fn fill_lease_keys<'a>(command: &'a mut Command, keys: &Keys) -> &'a mut Command {
    command
        .arg(keys.lock())
        .arg(keys.of_name("info"))
        .arg(keys.of_name("ended"))
}

// === Idempotency ===
//
// The idempotency key of an attempt, as arguments of the scripts.

/// Appends the idempotency key, the request's fingerprint and the token's salt; each is empty if there is no key.
pub(super) fn fill_idempotency(command: &mut Command, idempotency: Option<&Idempotency>) {
    match idempotency {
        None => command.arg("").arg("").arg(""),
        Some(key) => command
            .arg(hex(key.hash.as_bytes()))
            .arg(hex(key.fingerprint.as_bytes()))
            .arg(hex(key.salt.as_bytes())),
    };
}

/// A time in whole milliseconds, including the millisecond that has begun.
pub(super) fn begun_millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).map_or(u64::MAX, |ms| ms.saturating_add(1))
}

// === Nonce ===

/// Identity of one try to acquire. Each try of an attempt has a nonce of its own: otherwise a late copy of one try
/// would count for the next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Nonce(Box<str>);

/// How many hexadecimal digits a nonce of a try has: 128 bits.
const LENGTH: usize = 32;

// === impl Nonce ===

impl Nonce {
    pub(super) fn random() -> Self {
        let digits = Token::random().hash().to_string();
        Self(digits[..LENGTH].into())
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}
