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
    pub(super) lapse: Script,
    pub(super) advance: Script,
    pub(super) inspect: Script,
    pub(super) list: Script,
    pub(super) break_lock: Script,
    pub(super) probe: Script,
}

/// [`TOMBSTONE`] as the scripts take it.
pub(super) const TOMBSTONE_MS: u64 = TOMBSTONE.as_secs() * 1_000;
/// What the scripts share, by the name under which they import it. A function that a script does not
/// come to costs it nothing, because it imports what only its longer ways need behind the short one.
const PARTS: [(&str, &str); 14] = [
    ("adopt", include_str!("../lua/adopt.lua")),
    ("contend", include_str!("../lua/contend.lua")),
    ("gateways", include_str!("../lua/gateways.lua")),
    ("grant", include_str!("../lua/grant.lua")),
    ("hand_over", include_str!("../lua/hand_over.lua")),
    ("keeper", include_str!("../lua/keeper.lua")),
    ("mark", include_str!("../lua/mark.lua")),
    ("memory", include_str!("../lua/memory.lua")),
    ("record", include_str!("../lua/record.lua")),
    ("send", include_str!("../lua/send.lua")),
    ("settle", include_str!("../lua/settle.lua")),
    ("tell", include_str!("../lua/tell.lua")),
    ("time", include_str!("../lua/time.lua")),
    ("waiter", include_str!("../lua/waiter.lua")),
];
/// Enough for the arguments of any script without metadata.
const BYTES: usize = 1_024;
/// Command, hash, number of keys, six keys and fourteen arguments.
const ARGUMENTS: usize = 23;

// === impl Scripts ===

impl Scripts {
    pub(in crate::store::redis) fn new() -> Self {
        let of_queue = |text| Script::new(text, 6);
        Self {
            acquire: of_queue(include_str!("../lua/acquire.lua")),
            renew: Script::new(include_str!("../lua/renew.lua"), 5),
            release: of_queue(include_str!("../lua/release.lua")),
            give_back: of_queue(include_str!("../lua/give_back.lua")),
            confirm: Script::new(include_str!("../lua/confirm.lua"), 4),
            leave: of_queue(include_str!("../lua/leave.lua")),
            lapse: Script::new(include_str!("../lua/lapse.lua"), 3),
            advance: of_queue(include_str!("../lua/advance.lua")),
            inspect: Script::new(include_str!("../lua/inspect.lua"), 4),
            list: Script::new(include_str!("../lua/list.lua"), 2),
            break_lock: of_queue(include_str!("../lua/break.lua")),
            probe: Script::new(include_str!("../lua/probe.lua"), 1),
        }
    }
}

// === impl Script ===

impl Script {
    fn new(text: &str, keys: usize) -> Self {
        let text = compose(text);
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

/// Puts the parts in the place of the lines that import them.
fn compose(text: &str) -> String {
    let mut composed = String::with_capacity(4 * text.len());
    for line in text.lines() {
        let text = match line.strip_prefix("-- import ") {
            None => line,
            Some(name) => {
                let part = PARTS.iter().find(|(part, _)| *part == name);
                part.expect("a script imports a part that there is").1
            }
        };
        composed.push_str(text);
        composed.push('\n');
    }
    composed
}
