//! Metadata as the stores in Redis keep it.

use std::collections::BTreeMap;

use crate::lock::Metadata;

/// Metadata as a record keeps it; empty if there is none.
pub(crate) fn metadata_json(metadata: &Metadata) -> String {
    if metadata.is_empty() {
        return String::new();
    }
    let entries: BTreeMap<&str, &str> = metadata.stored().collect();
    serde_json::to_string(&entries).expect("texts by name are JSON")
}

/// Reads the same; `None` if it is anything else.
pub(crate) fn metadata_from_json(json: &str) -> Option<Metadata> {
    if json.is_empty() {
        return Some(Metadata::default());
    }
    let entries: BTreeMap<String, String> = serde_json::from_str(json).ok()?;
    Metadata::from_stored(entries).ok()
}
