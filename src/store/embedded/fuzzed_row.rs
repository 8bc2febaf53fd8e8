//! Reads any bytes as a row of the file, for fuzzers.

use super::row::{self, Meta, RowKey, Tombstone, seal, unseal};

/// What the bytes are as each kind of row, and as a key. Fails if something is taken that would not be
/// written so again.
pub(crate) fn fuzzed_row(bytes: &[u8]) -> String {
    let lease = row::decode(bytes).map(|lease| {
        let mut again = Vec::new();
        row::encode(&lease, &mut again);
        assert_eq!(row::decode(&again), Ok(lease), "another lease");
    });
    let meta = Meta::decode(bytes).map(|meta| {
        let mut again = Vec::new();
        meta.encode(&mut again);
        assert_eq!(again, bytes, "another row");
    });
    let tombstone = Tombstone::parse(bytes).map(|tombstone| {
        assert_eq!(tombstone.as_bytes(), bytes, "another tombstone");
    });
    let key = RowKey::parse_lease(bytes).map(|key| {
        key.map(|(name, fence)| {
            let again = RowKey::lease(&name, fence);
            assert_eq!(again.as_bytes(), bytes, "another key");
        })
    });
    // A seal is of its key and of nothing else.
    let mut sealed = bytes.to_vec();
    seal(b"a", &mut sealed, 0);
    assert_eq!(unseal(b"a", &sealed), Ok(bytes));
    assert!(unseal(b"b", &sealed).is_err());
    format!("{lease:?} {meta:?} {tombstone:?} {key:?}")
}
