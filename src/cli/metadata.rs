//! `--meta NAME=VALUE`.

use std::collections::BTreeMap;

use crate::lock::Metadata;

/// Reads one entry.
pub(super) fn entry(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("expected NAME=VALUE".to_owned()),
    }
}

/// Puts entries together. Where a name comes twice nobody can know which was meant.
pub(super) fn of(entries: &[(String, String)]) -> Result<Metadata, String> {
    let mut map = BTreeMap::new();
    for (name, value) in entries {
        if map.insert(name.clone(), value.clone()).is_some() {
            return Err(format!("has the entry {name:?} twice"));
        }
    }
    Metadata::new(map).map_err(|error| error.to_string())
}
