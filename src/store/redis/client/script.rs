//! Commands in the form in which they are sent, and the scripts that most commands call.

use std::io;

use bb8_redis::redis::{RedisWrite, ToRedisArgs};
use sha1::{Digest, Sha1};

use crate::{lock::Ttl, store::contract::TOMBSTONE};

use super::{
    super::{
        fields::{Layout, inline},
        keys::Keys,
    },
    texts::hex,
};

/// A script: its text, and the hash by which the server knows it.
#[derive(Debug)]
pub(crate) struct Script {
    text: String,
    hash: String,
    /// How many keys the script names.
    pub(super) keys: usize,
    /// The keys of a lock that the script names, in order. Empty if the caller appends the keys to each command.
    pub(super) of_lock: &'static [KeyOfLock],
    /// Whether the script never writes. Such a script does no harm if some keys of its slot are on another server.
    pub(super) read_only: bool,
    /// Whether the script can run with its first key alone while the slot is being moved. That key is the lock's key,
    /// which exists as long as the lease does.
    pub(super) runs_during_slot_migration: bool,
}

/// A function that returns one of the keys of a lock.
pub(crate) type KeyOfLock = fn(&Keys) -> &str;

/// [`TOMBSTONE`] in ms, as scripts take it: as an argument, or in place of the word `TOMBSTONE` in their text.
pub(crate) const TOMBSTONE_MS: u64 = TOMBSTONE.as_secs() * 1_000;

/// Parts of Lua text and layouts of records that several scripts share.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    /// Parts of Lua text, each with the name under which scripts import it.
    pub(crate) texts: &'static [(&'static str, &'static str)],
    /// Layouts of the records whose fields the scripts name.
    pub(crate) fields: &'static [&'static Layout],
    /// Words of the texts that stand for a number.
    pub(crate) numbers: [(&'static str, u64); 2],
}

/// The channel of all gateways, as the texts of the scripts spell it. The texts have the channel of database 0, which
/// is replaced for any other database.
const EVERYBODY: &str = "'lg:gw:all'";
/// Initial size of a command that calls a script, in bytes: enough for all arguments without metadata.
const BYTES: usize = 1_024;

// === impl Script ===

impl Script {
    pub(crate) fn new(text: &str, keys: usize, parts: &Parts) -> Self {
        let text = compose(text, parts);
        assert!(
            !text.contains(EVERYBODY),
            "a script that publishes is made for its channels"
        );
        Self::from_text(text, keys)
    }

    /// Creates a script that publishes messages to the gateways of its database, on the channel `everybody`.
    pub(crate) fn publishing(text: &str, keys: usize, parts: &Parts, everybody: &str) -> Self {
        let everybody = format!("'{everybody}'");
        Self::from_text(compose(text, parts).replace(EVERYBODY, &everybody), keys)
    }

    fn from_text(text: String, keys: usize) -> Self {
        let hash = hex(&Sha1::digest(&text));
        Self {
            text,
            hash,
            keys,
            of_lock: &[],
            read_only: false,
            runs_during_slot_migration: false,
        }
    }

    /// The same script, which names exactly these keys of a lock.
    pub(crate) fn naming(mut self, keys: &'static [KeyOfLock]) -> Self {
        self.of_lock = keys;
        self
    }

    pub(crate) fn read_only(mut self) -> Self {
        self.read_only = true;
        self
    }

    pub(crate) fn running_during_slot_migration(mut self) -> Self {
        self.runs_during_slot_migration = true;
        self
    }

    /// A call of the script by its hash (EVALSHA) with this number of keys. The caller appends the keys and
    /// arguments.
    pub(crate) fn by_hash(&self, keys: usize) -> Command {
        Command::with_capacity(BYTES)
            .with("EVALSHA")
            .with(&self.hash)
            .with(keys)
    }

    /// A call of the script by its full text (EVAL), which makes the script known to the server.
    pub(crate) fn in_full(&self, keys: usize) -> Command {
        let command = Command::with_capacity(BYTES + self.text.len());
        command.with("EVAL").with(&self.text).with(keys)
    }
}

/// Composes the text of a script: replaces the lines that import parts, the calls that name fields, and the words that
/// stand for a number, such as `TOMBSTONE`.
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
    let numbers = [("TOMBSTONE", TOMBSTONE_MS)]
        .into_iter()
        .chain(parts.numbers);
    let words = numbers.filter(|(word, _)| !word.is_empty());
    words.fold(composed, |text, (word, number)| {
        replace_word(&text, word, &number.to_string())
    })
}

/// Replaces a word in a Lua text wherever it stands alone, and not inside a longer word.
fn replace_word(text: &str, word: &str, replacement: &str) -> String {
    let is_in_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let pieces = text.split_inclusive(|c| !is_in_word(c));
    let replaced = pieces.flat_map(|piece| match piece.strip_prefix(word) {
        Some(end) if !end.starts_with(is_in_word) => [replacement, end],
        _ => [piece, ""],
    });
    replaced.collect()
}

// === Command ===
//
// A command is encoded for sending while its arguments are appended, so that it is written only once.

/// A Redis command whose arguments are bulk strings, in their order.
#[derive(Clone)]
pub(crate) struct Command {
    /// The arguments in RESP, without the line before them that states their number.
    packed: Vec<u8>,
    arguments: usize,
}

/// Writer of one argument, which is appended to the command when the writer is dropped.
struct ArgumentWriter<'a> {
    command: &'a mut Command,
    argument: Vec<u8>,
}

// === impl Command ===

impl Command {
    /// Creates a command without arguments.
    pub(crate) fn new(verb: &str) -> Self {
        Self::with_capacity(INITIAL_COMMAND_BYTES).with(verb)
    }

    fn with_capacity(bytes: usize) -> Self {
        Self {
            packed: Vec::with_capacity(bytes),
            arguments: 0,
        }
    }

    /// The command with one more argument.
    pub(crate) fn with(mut self, value: impl ToRedisArgs) -> Self {
        self.arg(value);
        self
    }

    /// Appends a value to the command, as one argument or several.
    pub(crate) fn arg(&mut self, value: impl ToRedisArgs) -> &mut Self {
        value.write_redis_args(self);
        self
    }

    /// Appends a TTL in milliseconds, or an empty argument if there is no TTL.
    pub(crate) fn arg_ttl(&mut self, ttl: Option<Ttl>) -> &mut Self {
        match ttl {
            Some(ttl) => self.arg(ttl.as_millis()),
            None => self.arg(""),
        }
    }

    /// Appends the command to a buffer, in the form in which it is sent.
    pub(crate) fn write_to(&self, unsent: &mut Vec<u8>) {
        unsent.reserve(self.packed.len() + LENGTH_LINE);
        write_length(unsent, b'*', self.arguments);
        unsent.extend_from_slice(&self.packed);
    }
}

impl RedisWrite for Command {
    fn write_arg(&mut self, argument: &[u8]) {
        self.arguments += 1;
        self.packed.reserve(argument.len() + LENGTH_LINE + 2);
        write_length(&mut self.packed, b'$', argument.len());
        self.packed.extend_from_slice(argument);
        self.packed.extend_from_slice(b"\r\n");
    }

    fn writer_for_next_arg(&mut self) -> impl io::Write + '_ {
        ArgumentWriter {
            command: self,
            argument: Vec::new(),
        }
    }
}

/// Initial size of a command, in bytes: enough for a command that calls no script.
const INITIAL_COMMAND_BYTES: usize = 128;
/// Maximum size of a line of RESP that states a length, in bytes: a sign, 20 digits, and the line break.
const LENGTH_LINE: usize = 23;

fn write_length(packed: &mut Vec<u8>, sign: u8, length: usize) {
    let (mut line, mut begin, mut rest) = ([0; LENGTH_LINE], LENGTH_LINE - 2, length);
    line[begin..].copy_from_slice(b"\r\n");
    loop {
        begin -= 1;
        line[begin] = b'0' + u8::try_from(rest % 10).unwrap_or_default();
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    line[begin - 1] = sign;
    packed.extend_from_slice(&line[begin - 1..]);
}

// === impl ArgumentWriter ===

impl io::Write for ArgumentWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.argument.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for ArgumentWriter<'_> {
    fn drop(&mut self) {
        self.command.write_arg(&self.argument);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use bb8_redis::redis::cmd;

    use super::*;

    #[test]
    fn the_tombstone_is_put_in_the_place_of_the_whole_word_only() {
        let part = Parts {
            texts: &[("part", "local A = 'TOMBSTONE' + NO_TOMBSTONE")],
            fields: &[],
            ..Parts::default()
        };
        let text = "-- import part\nTOMBSTONE_MS, TOMBSTONES, TOMBSTONE)";
        assert_eq!(
            compose(text, &part),
            "local A = '60000' + NO_TOMBSTONE\nTOMBSTONE_MS, TOMBSTONES, 60000)\n"
        );
    }

    #[test]
    fn a_command_is_written_as_the_library_writes_it() {
        let long = "x".repeat(1_000);
        let mut ours = Command::new("EVALSHA")
            .with("")
            .with("a\r\nb")
            .with(-17_i64);
        ours.arg(u64::MAX).arg(&long).arg([1_u8, 0, 255].as_slice());
        ours.writer_for_next_arg().write_all(b"$3\r\nxyz").unwrap();
        let mut theirs = cmd("EVALSHA");
        theirs.arg("").arg("a\r\nb").arg(-17_i64).arg(u64::MAX);
        theirs.arg(&long).arg([1_u8, 0, 255].as_slice());
        theirs.arg(b"$3\r\nxyz");
        let [mut written, mut expected] = [b"before".to_vec(), b"before".to_vec()];
        ours.write_to(&mut written);
        theirs.write_packed_command(&mut expected);
        assert_eq!(written, expected);
    }
}
