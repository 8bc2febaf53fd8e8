//! Reads any bytes as a row of the log and as a log file, for fuzzers.

use super::{
    replay::fuzzed_log,
    row::{self, Fields, Meta, RowKey, Tombstone},
};

/// What the bytes are as each kind of row, and as a key. Fails if something is taken that would not be
/// written so again.
pub(crate) fn fuzzed_row(bytes: &[u8]) -> String {
    let lease = row::decode(bytes).map(|lease| {
        let mut again = Vec::new();
        row::encode(&lease, &mut again);
        assert_eq!(row::decode(&again), Ok(lease), "another lease");
    });
    let meta = Meta::read(&mut Fields::of(bytes)).map(|meta| {
        let mut again = Vec::new();
        meta.encode(&mut again);
        assert!(bytes.starts_with(&again), "another start");
    });
    let tombstone = Tombstone::parse(bytes).map(|tombstone| {
        assert_eq!(tombstone.as_bytes(), bytes, "another tombstone");
    });
    let key = RowKey::parse_lease(bytes).map(|key| {
        key.map(|(name, shared)| {
            let again = match shared {
                None => RowKey::exclusive(&name),
                Some(fence) => RowKey::shared(&name, fence),
            };
            assert_eq!(again.as_bytes(), bytes, "another key");
        })
    });
    let log = fuzzed_log(bytes);
    format!("{lease:?} {meta:?} {tombstone:?} {key:?} {log}")
}
