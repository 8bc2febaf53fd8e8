//! Cursors: where one page of a list ends and the next begins.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use sha2::{Digest, Sha256};

use crate::lock::Owner;

use super::list_filter::ListFilter;

/// A position in the walk through all locks. A cursor is valid for the store that issued it, at every gateway
/// on that store, and reveals nothing about any lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cursor {
    /// The embedded store: the walk continues after this position in the store's own order.
    Embedded {
        /// The position of the last name that the walk has passed.
        position: u64,
    },
    /// Redis: the walk scans one server after the other.
    Redis {
        /// Index of the server, in the order of the first slot of each server.
        node: u16,
        /// How far this server was scanned.
        scanned: Scanned,
    },
    /// A quorum: the walk scans one server after the other.
    Quorum {
        /// Index of the server in the quorum.
        node: u8,
        /// How many servers before this one could not be scanned.
        skipped: u8,
        /// When the walk began, in milliseconds by the clock of the first scanned server; 0 if unknown.
        since: u64,
        /// How far this server was scanned.
        scanned: Scanned,
    },
}

/// How far a Redis server was scanned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scanned {
    /// Identifies the run of the server: a cursor of `SCAN` means nothing to another run or server.
    pub run: u32,
    /// The cursor that `SCAN` answered.
    pub scan: u64,
}

/// The text is not a valid cursor for this list and filter.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "is not the next_cursor of a page with this prefix, owner and search; leave it out to begin \
     with the first page"
)]
pub struct CursorError;

/// How many bytes a cursor has: kind, node, run, scan position, and check.
const BYTES: usize = CONTENT + CHECK;
const CONTENT: usize = 15;
const CHECK: usize = 3;
/// How many more bytes a quorum's cursor has, for the beginning of the walk.
const SINCE: usize = 6;
const MAX_CURSOR_BYTES: usize = BYTES + SINCE;
const EMBEDDED: u8 = 1;
const REDIS: u8 = 2;
const QUORUM: u8 = 4;

// === impl Cursor ===

impl Cursor {
    /// The possible lengths of a cursor as text, in characters.
    pub const LENGTHS: [usize; 2] = [BYTES / 3 * 4, MAX_CURSOR_BYTES / 3 * 4];

    /// Encodes the cursor as text, for a walk with this filter.
    pub fn expose(self, filter: &ListFilter) -> String {
        let at = |scan| Scanned { run: 0, scan };
        let (kind, node, scanned, since) = match self {
            Self::Embedded { position } => (EMBEDDED, 0, at(position), None),
            Self::Redis { node, scanned } => (REDIS, node, scanned, None),
            Self::Quorum {
                node,
                skipped,
                since,
                scanned,
            } => {
                let node = u16::from_be_bytes([skipped, node]);
                (QUORUM, node, scanned, Some(since))
            }
        };
        let mut bytes = Vec::with_capacity(MAX_CURSOR_BYTES);
        bytes.push(kind);
        bytes.extend(node.to_be_bytes());
        bytes.extend(scanned.run.to_be_bytes());
        bytes.extend(scanned.scan.to_be_bytes());
        if let Some(since) = since {
            let [_, _, since @ ..] = since.to_be_bytes();
            bytes.extend(since);
        }
        let check = check(&bytes, filter);
        bytes.extend(check);
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// Decodes a cursor, for a walk with the same filter.
    ///
    /// The check detects mistakes and is not a secret: a caller that forges a cursor only starts its walk
    /// somewhere in the middle.
    pub fn parse(text: &str, filter: &ListFilter) -> Result<Self, CursorError> {
        let mut bytes = [0; MAX_CURSOR_BYTES];
        let decoded = URL_SAFE_NO_PAD.decode_slice(text, &mut bytes);
        let bytes = &bytes[..decoded.map_err(|_| CursorError)?];
        let (content, given) = bytes.split_last_chunk::<CHECK>().ok_or(CursorError)?;
        if check(content, filter) != *given {
            return Err(CursorError);
        }
        Self::read(content).ok_or(CursorError)
    }

    fn read(content: &[u8]) -> Option<Self> {
        let mut rest = content;
        let [kind] = take(&mut rest)?;
        let node = u16::from_be_bytes(take(&mut rest)?);
        let run = u32::from_be_bytes(take(&mut rest)?);
        let scan = u64::from_be_bytes(take(&mut rest)?);
        let since = match kind {
            QUORUM => {
                let since: [u8; SINCE] = take(&mut rest)?;
                since
                    .iter()
                    .fold(0, |since, byte| (since << 8) | u64::from(*byte))
            }
            _ => 0,
        };
        let scanned = Scanned { run, scan };
        match kind {
            _ if !rest.is_empty() => None,
            EMBEDDED => Some(Self::Embedded { position: scan }),
            REDIS => Some(Self::Redis { node, scanned }),
            QUORUM => {
                let [skipped, node] = node.to_be_bytes();
                Some(Self::Quorum {
                    node,
                    skipped,
                    since,
                    scanned,
                })
            }
            _ => None,
        }
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, left) = rest.split_first_chunk()?;
    *rest = left;
    Some(*taken)
}

fn check(content: &[u8], filter: &ListFilter) -> [u8; CHECK] {
    let mut hash = Sha256::new();
    hash.update(b"latchgate list");
    hash.update(content);
    hash.update(filter.prefix.as_str());
    // A separator that occurs in no prefix and no owner, so that two filters never hash the same text.
    hash.update(b"\n");
    hash.update(filter.owner.as_ref().map_or("", Owner::as_str));
    if let Some(search) = &filter.search {
        hash.update(b"\n");
        hash.update(search.as_str());
    }
    let digest: [u8; 32] = hash.finalize().into();
    [digest[0], digest[1], digest[2]]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::{NamePrefix, SearchText};

    const fn scanned(run: u32, scan: u64) -> Scanned {
        Scanned { run, scan }
    }

    const CURSORS: [Cursor; 6] = [
        Cursor::Quorum {
            node: 2,
            skipped: 1,
            since: (1 << 48) - 1,
            scanned: scanned(0xdead_beef, 1 << 40),
        },
        Cursor::Quorum {
            node: 14,
            skipped: 0,
            since: 1_795_000_000_000,
            scanned: scanned(7, 0),
        },
        Cursor::Embedded { position: u64::MAX },
        Cursor::Redis {
            node: 0,
            scanned: scanned(0xdead_beef, 1 << 40),
        },
        Cursor::Redis {
            node: 16_383,
            scanned: scanned(0xdead_beef, 0),
        },
        Cursor::Redis {
            node: u16::MAX,
            scanned: scanned(0, u64::MAX),
        },
    ];

    fn filter(prefix: &str, owner: &str, search: &str) -> ListFilter {
        ListFilter {
            prefix: NamePrefix::new(prefix).unwrap(),
            owner: Owner::new(owner).ok(),
            search: SearchText::new(search).ok(),
        }
    }

    #[test]
    fn goes_on_where_it_ended() {
        for cursor in CURSORS {
            for (owner, search) in [("", ""), ("ci", ""), ("", "ci"), ("ci", "prod")] {
                let filter = filter("team:", owner, search);
                let text = cursor.expose(&filter);
                assert!(Cursor::LENGTHS.contains(&text.len()), "{text}");
                assert_eq!(Cursor::parse(&text, &filter), Ok(cursor));
            }
        }
    }

    #[test]
    fn belongs_to_its_filter() {
        let text = CURSORS[0].expose(&filter("team", "ci", "x"));
        for (prefix, owner, search) in [
            ("team", "", "x"),
            ("team", "mci", "x"),
            ("tea", "ci", "x"),
            ("tea", "mci", "x"),
            ("team", "ci", ""),
            ("team", "ci", "y"),
            ("team", "x", "ci"),
        ] {
            let other = filter(prefix, owner, search);
            assert_eq!(Cursor::parse(&text, &other), Err(CursorError));
        }
    }

    #[test]
    fn that_was_changed_anywhere_is_none() {
        let all = ListFilter::default();
        for text in CURSORS.map(|cursor| cursor.expose(&all)) {
            let changed = (0..text.len()).map(|at| {
                let other = if text.as_bytes()[at] == b'A' {
                    "B"
                } else {
                    "A"
                };
                [&text[..at], other, &text[at + 1..]].concat()
            });
            let odd = ["", "0", &text[1..]].map(str::to_owned);
            let longer = [format!("{text}A"), format!("{text}=")];
            for other in changed.chain(odd).chain(longer) {
                assert_eq!(Cursor::parse(&other, &all), Err(CursorError), "{other}");
            }
        }
    }
}
