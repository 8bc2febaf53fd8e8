//! A script, and how it is called.

use sha1::{Digest, Sha1};

use crate::{
    mutants,
    store::{
        contract::{Idempotency, TOMBSTONE},
        redis::channels::Channels,
    },
};

use super::{super::client::script_call::ScriptCall, hex};

/// The text of a script and the hash by which the server knows it.
#[derive(Debug)]
pub(in crate::store::redis) struct Script {
    text: String,
    hash: String,
    keys: usize,
    /// Whether it only looks: it comes to no harm where keys of its slot are elsewhere.
    read_only: bool,
    /// Whether it can do with its first key, which is the lock.
    runs_during_slot_migration: bool,
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
    pub(super) count: Script,
    pub(super) break_lock: Script,
    pub(super) probe: Script,
}

/// [`TOMBSTONE`] as the scripts take it: those of a quorum as an argument, the others in the place of the word.
pub(in crate::store::redis) const TOMBSTONE_MS: u64 = TOMBSTONE.as_secs() * 1_000;
/// What the scripts share, by the name under which they import it. A function that a script does not
/// come to costs it nothing, because it imports what only its longer ways need behind the short one.
const PARTS: [(&str, &str); 23] = [
    ("adopt", include_str!("../redlock/lua/parts/adopt.lua")),
    ("clock", include_str!("parts/clock.lua")),
    ("contention", include_str!("parts/contention.lua")),
    ("fence", include_str!("parts/fence.lua")),
    ("field", include_str!("parts/field.lua")),
    ("gateways", include_str!("parts/gateways.lua")),
    ("hand_over", include_str!("parts/hand_over.lua")),
    ("keeper", include_str!("../redlock/lua/parts/keeper.lua")),
    ("grant_ttl", include_str!("parts/grant_ttl.lua")),
    ("lease", include_str!("parts/lease.lua")),
    ("attempt_marks", include_str!("parts/attempt_marks.lua")),
    ("mark", include_str!("../redlock/lua/parts/mark.lua")),
    ("memory", include_str!("../redlock/lua/parts/memory.lua")),
    ("permissions", include_str!("parts/permissions.lua")),
    ("propose", include_str!("../redlock/lua/parts/propose.lua")),
    ("record", include_str!("../redlock/lua/parts/record.lua")),
    ("send", include_str!("parts/send.lua")),
    ("settle", include_str!("../redlock/lua/parts/settle.lua")),
    (
        "lease_reply",
        include_str!("../redlock/lua/parts/lease_reply.lua"),
    ),
    ("sweep", include_str!("parts/sweep.lua")),
    ("time", include_str!("../redlock/lua/parts/time.lua")),
    ("vote", include_str!("../redlock/lua/parts/vote.lua")),
    (
        "publish_free",
        include_str!("../redlock/lua/parts/publish_free.lua"),
    ),
];
/// The channel of all gateways as it stands in the scripts, which is that of the first database.
const EVERYBODY: &str = "'lg:gw:all'";
/// Enough for the arguments of any script without metadata.
const BYTES: usize = 1_024;

// === impl Scripts ===

impl Scripts {
    pub(in crate::store::redis) fn new(channels: &Channels) -> Self {
        let of_queue = |text| Script::publishing(text, 2, channels);
        Self {
            acquire: of_queue(include_str!("acquire.lua")),
            renew: of_queue(include_str!("renew.lua")).running_during_slot_migration(),
            release: of_queue(include_str!("release.lua")).running_during_slot_migration(),
            give_back: of_queue(include_str!("give_back.lua")),
            confirm: Script::new(include_str!("confirm.lua"), 2).running_during_slot_migration(),
            leave: of_queue(include_str!("leave.lua")),
            lapse: Script::new(include_str!("lapse.lua"), 1),
            advance: of_queue(include_str!("advance.lua")),
            inspect: Script::new(include_str!("inspect.lua"), 2).read_only(),
            list: Script::new(include_str!("list.lua"), 1).read_only(),
            count: Script::new(include_str!("count.lua"), 2).read_only(),
            break_lock: of_queue(include_str!("break.lua")),
            probe: Script::new(include_str!("probe.lua"), 1).read_only(),
        }
    }

    /// Those that the nodes of a quorum run besides their own: a node is probed for the commands of those.
    pub(in crate::store::redis) fn of_nodes(channels: &Channels) -> Self {
        let probe = include_str!("../redlock/lua/quorum_probe.lua");
        Self {
            probe: Script::new(probe, 1).read_only(),
            ..Self::new(channels)
        }
    }
}

// === impl Script ===

impl Script {
    pub(in crate::store::redis) fn new(text: &str, keys: usize) -> Self {
        let text = compose(text);
        assert!(
            !text.contains(EVERYBODY),
            "a script that publishes is made for its channels"
        );
        Self::of(text, keys)
    }

    /// One that sends messages to the gateways of its database.
    pub(in crate::store::redis) fn publishing(
        text: &str,
        keys: usize,
        channels: &Channels,
    ) -> Self {
        let everybody = format!("'{}'", channels.all);
        Self::of(compose(text).replace(EVERYBODY, &everybody), keys)
    }

    fn of(text: String, keys: usize) -> Self {
        let text = mutants::script(text);
        let hash = hex::write(&Sha1::digest(&text));
        Self {
            text,
            hash,
            keys,
            read_only: false,
            runs_during_slot_migration: false,
        }
    }

    fn read_only(mut self) -> Self {
        self.read_only = true;
        self
    }

    fn running_during_slot_migration(mut self) -> Self {
        self.runs_during_slot_migration = true;
        self
    }

    /// How many keys it names.
    pub(in crate::store::redis) fn keys(&self) -> usize {
        self.keys
    }

    /// Whether it changes anything.
    pub(in crate::store::redis) fn writes(&self) -> bool {
        !self.read_only
    }

    /// Whether it can do with its first key while its slot is being moved: the lock, which exists as long as the
    /// lease does.
    pub(in crate::store::redis) fn runs_during_slot_migration(&self) -> bool {
        self.runs_during_slot_migration
    }

    /// A call of the script as the server knows it, without keys and arguments.
    pub(in crate::store::redis) fn by_hash(&self) -> ScriptCall {
        let mut command = ScriptCall::with_capacity(BYTES);
        command.arg("EVALSHA").arg(&self.hash).arg(self.keys);
        command
    }

    /// A call that also makes the script known, without keys and arguments.
    pub(in crate::store::redis) fn in_full(&self) -> ScriptCall {
        let mut command = ScriptCall::with_capacity(BYTES + self.text.len());
        command.arg("EVAL").arg(&self.text).arg(self.keys);
        command
    }
}

/// Puts the parts in the place of the lines that import them, and the number in the place of the word.
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
    composed.replace("TOMBSTONE", &TOMBSTONE_MS.to_string())
}

// === Idempotency ===
//
// The idempotency key of an attempt, as the scripts are given it.

/// Key, fingerprint and salt; each empty if there is no key.
pub(in crate::store::redis) fn fill_idempotency(
    command: &mut ScriptCall,
    idempotency: Option<&Idempotency>,
) {
    match idempotency {
        None => command.arg("").arg("").arg(""),
        Some(key) => command
            .arg(hex::write(key.hash.as_bytes()))
            .arg(hex::write(key.fingerprint.as_bytes()))
            .arg(hex::write(key.salt.as_bytes())),
    };
}
