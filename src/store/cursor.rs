//! Where one page of a list ends and the next begins.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use sha2::{Digest, Sha256};

use crate::lock::{NamePrefix, Owner};

/// A position in the walk through all locks. It means something to the store that gave it, says
/// nothing about any lock, and counts at every gateway on that store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cursor {
    /// The embedded store: behind the locks up to this place in its own order.
    Embedded {
        /// The place.
        place: u64,
    },
    /// Redis: what `SCAN` answered.
    Redis {
        /// Which of the servers of the store.
        node: u16,
        /// Tells the run of that server apart from others: what `SCAN` answers means nothing to
        /// another.
        run: u32,
        /// What it answered.
        scan: u64,
    },
}

/// The text is no cursor of this list.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "is not the next_cursor of a page with this prefix and owner; leave it out to begin with the \
     first page"
)]
pub struct CursorError;

/// How many bytes a cursor has: a kind, a node, a run, a position and a check.
const BYTES: usize = 18;
/// How many of them are not the check.
const CONTENT: usize = 15;
const EMBEDDED: u8 = 1;
const REDIS: u8 = 2;

// === impl Cursor ===

impl Cursor {
    /// How many characters a cursor has as text.
    pub const LEN: usize = BYTES / 3 * 4;

    /// The cursor as text, for the walk with this prefix and owner.
    pub fn expose(self, prefix: &NamePrefix, owner: Option<&Owner>) -> String {
        let mut bytes = [0; BYTES];
        let (kind, node, run, position) = match self {
            Self::Embedded { place } => (EMBEDDED, 0, 0, place),
            Self::Redis { node, run, scan } => (REDIS, node, run, scan),
        };
        bytes[0] = kind;
        bytes[1..3].copy_from_slice(&node.to_be_bytes());
        bytes[3..7].copy_from_slice(&run.to_be_bytes());
        bytes[7..CONTENT].copy_from_slice(&position.to_be_bytes());
        let check = check(&bytes[..CONTENT], prefix, owner);
        bytes[CONTENT..].copy_from_slice(&check);
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// Reads a cursor that goes on with the walk with this prefix and owner.
    ///
    /// The check finds mistakes and is no secret: whoever makes up a cursor begins somewhere in the
    /// middle.
    pub fn parse(
        text: &str,
        prefix: &NamePrefix,
        owner: Option<&Owner>,
    ) -> Result<Self, CursorError> {
        let mut bytes = [0; BYTES];
        if URL_SAFE_NO_PAD.decode_slice(text, &mut bytes) != Ok(BYTES) {
            return Err(CursorError);
        }
        let (content, given) = bytes.split_at(CONTENT);
        if check(content, prefix, owner) != given {
            return Err(CursorError);
        }
        let node = u16::from_be_bytes([bytes[1], bytes[2]]);
        let run = u32::from_be_bytes([bytes[3], bytes[4], bytes[5], bytes[6]]);
        let (_, position) = content
            .split_last_chunk()
            .expect("a position has eight bytes");
        let position = u64::from_be_bytes(*position);
        match bytes[0] {
            EMBEDDED => Ok(Self::Embedded { place: position }),
            REDIS => Ok(Self::Redis {
                node,
                run,
                scan: position,
            }),
            _ => Err(CursorError),
        }
    }
}

fn check(content: &[u8], prefix: &NamePrefix, owner: Option<&Owner>) -> [u8; BYTES - CONTENT] {
    let mut hash = Sha256::new();
    hash.update(b"latchgate list");
    hash.update(content);
    hash.update(prefix.as_str());
    // No prefix holds this byte.
    hash.update(b"\n");
    hash.update(owner.map_or("", Owner::as_str));
    let digest: [u8; 32] = hash.finalize().into();
    [digest[0], digest[1], digest[2]]
}

#[cfg(test)]
mod tests {
    use super::*;

    const CURSORS: [Cursor; 3] = [
        Cursor::Embedded { place: u64::MAX },
        Cursor::Redis {
            node: 7,
            run: 0xdead_beef,
            scan: 1 << 40,
        },
        Cursor::Redis {
            node: 0,
            run: 0,
            scan: u64::MAX,
        },
    ];

    #[test]
    fn goes_on_where_it_ended() {
        let prefix = NamePrefix::new("team:").unwrap();
        let owner = Owner::new("ci").unwrap();
        for cursor in CURSORS {
            for owner in [None, Some(&owner)] {
                let text = cursor.expose(&prefix, owner);
                assert_eq!(text.len(), Cursor::LEN);
                assert_eq!(Cursor::parse(&text, &prefix, owner), Ok(cursor));
            }
        }
    }

    #[test]
    fn belongs_to_its_prefix_and_owner() {
        let [team, tea] = ["team", "tea"].map(|text| NamePrefix::new(text).unwrap());
        let [ci, mci] = ["ci", "mci"].map(|text| Owner::new(text).unwrap());
        let text = CURSORS[0].expose(&team, Some(&ci));
        for (prefix, owner) in [
            (&team, None),
            (&team, Some(&mci)),
            (&tea, Some(&ci)),
            (&tea, Some(&mci)),
        ] {
            assert_eq!(Cursor::parse(&text, prefix, owner), Err(CursorError));
        }
    }

    #[test]
    fn that_was_changed_anywhere_is_none() {
        let prefix = NamePrefix::default();
        let text = CURSORS[1].expose(&prefix, None);
        for at in 0..text.len() {
            let mut changed = text.clone().into_bytes();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(changed).unwrap();
            let read = Cursor::parse(&changed, &prefix, None);
            assert_eq!(read, Err(CursorError), "{changed}");
        }
        for odd in [
            "",
            "0",
            &text[1..],
            &format!("{text}A"),
            &format!("{text}="),
        ] {
            assert_eq!(Cursor::parse(odd, &prefix, None), Err(CursorError), "{odd}");
        }
    }
}
