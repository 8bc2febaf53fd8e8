//! A script, and how it is called.

use std::fmt::Write as _;

use bb8_redis::redis::Cmd;
use sha1::{Digest, Sha1};

use crate::store::contract::TOMBSTONE;

/// The text of a script and the hash by which the server knows it.
#[derive(Debug)]
pub(in crate::store::redis) struct Script {
    text: String,
    hash: String,
    keys: usize,
}

/// All scripts.
#[derive(Debug)]
pub(in crate::store::redis) struct Scripts {
    pub(super) acquire: Script,
    pub(super) renew: Script,
    pub(super) release: Script,
    pub(super) give_back: Script,
    pub(super) confirm: Script,
    pub(super) leave: Script,
    pub(super) advance: Script,
    pub(super) inspect: Script,
    pub(super) probe: Script,
}

/// [`TOMBSTONE`] as the scripts take it.
pub(super) const TOMBSTONE_MS: u64 = TOMBSTONE.as_secs() * 1_000;
/// Enough for the arguments of any script without metadata.
const BYTES: usize = 1_024;
/// Command, hash, number of keys, six keys and fourteen arguments.
const ARGUMENTS: usize = 23;

// === impl Scripts ===

impl Scripts {
    pub(in crate::store::redis) fn new() -> Self {
        let lease = include_str!("../lua/lease.lua");
        let queue = include_str!("../lua/queue.lua");
        let of_queue = |keys, text: &str| Script::new(format!("{lease}\n{queue}\n{text}"), keys);
        Self {
            acquire: of_queue(6, include_str!("../lua/acquire.lua")),
            renew: Script::new(format!("{lease}\n{}", include_str!("../lua/renew.lua")), 3),
            release: of_queue(6, include_str!("../lua/release.lua")),
            give_back: of_queue(6, include_str!("../lua/give_back.lua")),
            confirm: of_queue(4, include_str!("../lua/confirm.lua")),
            leave: of_queue(6, include_str!("../lua/leave.lua")),
            advance: of_queue(6, include_str!("../lua/advance.lua")),
            inspect: of_queue(4, include_str!("../lua/inspect.lua")),
            probe: Script::new(include_str!("../lua/probe.lua").to_owned(), 1),
        }
    }
}

// === impl Script ===

impl Script {
    fn new(text: String, keys: usize) -> Self {
        let mut hash = String::with_capacity(40);
        for byte in Sha1::digest(&text) {
            write!(hash, "{byte:02x}").expect("writing to a string cannot fail");
        }
        Self { text, hash, keys }
    }

    /// A call of the script as the server knows it, without keys and arguments.
    pub(in crate::store::redis) fn by_hash(&self) -> Cmd {
        let mut command = Cmd::with_capacity(ARGUMENTS, BYTES);
        command.arg("EVALSHA").arg(&self.hash).arg(self.keys);
        command
    }

    /// A call that also makes the script known, without keys and arguments.
    pub(in crate::store::redis) fn in_full(&self) -> Cmd {
        let mut command = Cmd::with_capacity(ARGUMENTS, BYTES + self.text.len());
        command.arg("EVAL").arg(&self.text).arg(self.keys);
        command
    }
}
