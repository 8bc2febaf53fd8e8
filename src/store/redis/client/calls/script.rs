//! A script, and how it is called.

use sha1::{Digest, Sha1};

use crate::store::contract::TOMBSTONE;

use super::{
    super::super::fields::{Layout, inline},
    ScriptCall, hex,
};

/// The text of a script and the hash by which the server knows it.
#[derive(Debug)]
pub(crate) struct Script {
    text: String,
    hash: String,
    keys: usize,
    /// Whether it only looks: it comes to no harm where keys of its slot are elsewhere.
    read_only: bool,
    /// Whether it can do with its first key, which is the lock.
    runs_during_slot_migration: bool,
}

/// [`TOMBSTONE`] as scripts take it: as an argument, or in the place of the word.
pub(crate) const TOMBSTONE_MS: u64 = TOMBSTONE.as_secs() * 1_000;

/// What scripts share.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    /// By the name under which they import it.
    pub(crate) texts: &'static [(&'static str, &'static str)],
    /// What they name fields of.
    pub(crate) fields: &'static [&'static Layout],
}

/// The channel of all gateways as it stands in the scripts, which is that of the first database.
const EVERYBODY: &str = "'lg:gw:all'";
/// Enough for the arguments of any script without metadata.
const BYTES: usize = 1_024;

// === impl Script ===

impl Script {
    pub(crate) fn new(text: &str, keys: usize, parts: &Parts) -> Self {
        let text = compose(text, parts);
        assert!(
            !text.contains(EVERYBODY),
            "a script that publishes is made for its channels"
        );
        Self::of(text, keys)
    }

    /// One that sends messages to the gateways of its database, on this channel.
    pub(crate) fn publishing(text: &str, keys: usize, parts: &Parts, everybody: &str) -> Self {
        let everybody = format!("'{everybody}'");
        Self::of(compose(text, parts).replace(EVERYBODY, &everybody), keys)
    }

    fn of(text: String, keys: usize) -> Self {
        let hash = hex::write(&Sha1::digest(&text));
        Self {
            text,
            hash,
            keys,
            read_only: false,
            runs_during_slot_migration: false,
        }
    }

    pub(crate) fn read_only(mut self) -> Self {
        self.read_only = true;
        self
    }

    pub(crate) fn running_during_slot_migration(mut self) -> Self {
        self.runs_during_slot_migration = true;
        self
    }

    /// How many keys it names.
    pub(crate) fn keys(&self) -> usize {
        self.keys
    }

    /// Whether it changes anything.
    pub(crate) fn writes(&self) -> bool {
        !self.read_only
    }

    /// Whether it can do with its first key while its slot is being moved: the lock, which exists as long as the
    /// lease does.
    pub(crate) fn runs_during_slot_migration(&self) -> bool {
        self.runs_during_slot_migration
    }

    /// A call of the script as the server knows it, without keys and arguments.
    pub(crate) fn by_hash(&self) -> ScriptCall {
        let mut command = ScriptCall::with_capacity(BYTES);
        command.arg("EVALSHA").arg(&self.hash).arg(self.keys);
        command
    }

    /// A call that also makes the script known, without keys and arguments.
    pub(crate) fn in_full(&self) -> ScriptCall {
        let mut command = ScriptCall::with_capacity(BYTES + self.text.len());
        command.arg("EVAL").arg(&self.text).arg(self.keys);
        command
    }
}

/// Puts the parts in the place of the lines that import them, places in the place of the calls that name fields, and the
/// number in the place of the word `TOMBSTONE`.
fn compose(text: &str, parts: &Parts) -> String {
    let mut composed = String::with_capacity(4 * text.len());
    for line in text.lines() {
        let text = match line.strip_prefix("-- import ") {
            None => line,
            Some(name) => {
                let part = parts.texts.iter().find(|(part, _)| *part == name);
                part.expect("a script imports a part that there is").1
            }
        };
        composed.push_str(text);
        composed.push('\n');
    }
    let composed = inline(&composed, parts.fields);
    replace_word(&composed, "TOMBSTONE", &TOMBSTONE_MS.to_string())
}

/// Replaces a word where it stands alone. In a longer word it stays.
fn replace_word(text: &str, word: &str, replacement: &str) -> String {
    let is_in_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let pieces = text.split_inclusive(|c| !is_in_word(c));
    let replaced = pieces.flat_map(|piece| match piece.strip_prefix(word) {
        Some(end) if !end.starts_with(is_in_word) => [replacement, end],
        _ => [piece, ""],
    });
    replaced.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tombstone_is_put_in_the_place_of_the_whole_word_only() {
        let part = Parts {
            texts: &[("part", "local A = 'TOMBSTONE' + NO_TOMBSTONE")],
            fields: &[],
        };
        let text = "-- import part\nTOMBSTONE_MS, TOMBSTONES, TOMBSTONE)";
        assert_eq!(
            compose(text, &part),
            "local A = '60000' + NO_TOMBSTONE\nTOMBSTONE_MS, TOMBSTONES, 60000)\n"
        );
    }
}
