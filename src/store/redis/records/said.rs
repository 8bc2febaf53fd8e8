//! What a caller says of itself, as every record keeps it: the owner, a line feed, and the metadata as JSON, which also
//! has the group or the reservation of the lease. No script reads the metadata, except for the time of a reservation.

use std::collections::BTreeMap;

use crate::lock::{Owner, Reservation, Said, Terms};

/// Appends what the caller of these terms says of itself to a text.
pub(in crate::store::redis) fn append_said(text: &mut String, terms: &Terms) {
    let said = &terms.said;
    text.push_str(said.owner.as_ref().map_or("", Owner::as_str));
    text.push('\n');
    let ours = said.ours(terms.reservation());
    let mut entries = said.stored(ours.as_ref()).peekable();
    if entries.peek().is_some() {
        let entries: BTreeMap<&str, &str> = entries.collect();
        text.push_str(&serde_json::to_string(&entries).expect("texts by name are JSON"));
    }
}

/// Reads the two lines that [`append_said`] writes; `None` for any other text.
pub(in crate::store::redis) fn read_said(
    owner: &str,
    metadata: &str,
) -> Option<(Said, Option<Reservation>)> {
    let owner = (!owner.is_empty()).then(|| Owner::new(owner)).transpose();
    let entries: BTreeMap<String, String> = match metadata {
        "" => BTreeMap::new(),
        json => serde_json::from_str(json).ok()?,
    };
    Said::from_stored(owner.ok()?, entries).ok()
}
