//! Callers with an exchanged key: who they are, and what their API key says of them.

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
    time::SystemTime,
};

use parking_lot::Mutex;

use crate::lock::{CallerId, Metadata, MetadataError, Owner, Said};

use super::{
    KeyEntry, KeyRing,
    oidc::{ExchangedContent, Rendered},
};

/// A caller with an exchanged key.
#[derive(Debug)]
pub(super) struct ExchangedCaller {
    pub(super) content: ExchangedContent,
    /// When the key ends for everything but renewals: as it was sealed, or sooner if its API key says so now.
    pub(super) until: SystemTime,
    pub(super) id: CallerId,
    pub(super) label: Arc<str>,
    pub(super) mark: Arc<str>,
    /// The API key with the names that the claims permit, if the exchanged key counts, and the keys of which that is true.
    entry: Mutex<(Weak<KeyRing>, Option<Arc<KeyEntry>>)>,
}

/// The metadata entry with the owner that a caller has named, if its API key declares another.
const SAID_OWNER: &str = "said_owner";

// === impl ExchangedCaller ===

impl ExchangedCaller {
    pub(super) fn new(content: ExchangedContent, key: &Arc<KeyEntry>, ring: &Arc<KeyRing>) -> Self {
        let session = key.exchange.as_ref().map(|rules| rules.session);
        let ExchangedContent {
            name,
            issuer,
            subject,
            workload,
            ..
        } = &content;
        let id = CallerId::of_subject(name, issuer, subject, workload);
        let (mut label, mut mark) = (
            id.label().unwrap_or_default(),
            id.mark().unwrap_or_default(),
        );
        if let Some(person) = &content.person {
            // The hash in the mark tells two people apart that are shown the same.
            let hash = mark.strip_prefix(&*label).unwrap_or_default();
            let shown = format!("{person} ({name})");
            mark = format!("{shown}{hash}").into();
            label = shown.into();
        }
        Self {
            until: content
                .until()
                .min(content.at() + session.unwrap_or_default()),
            label,
            mark,
            id,
            entry: Mutex::new((Arc::downgrade(ring), Some(Arc::clone(key)))),
            content,
        }
    }

    /// The API key with the names that the claims permit, if the exchanged key counts. It is made once for each change of
    /// the keys, because a stream asks for each event.
    pub(super) fn entry(&self, ring: &Arc<KeyRing>) -> Option<Arc<KeyEntry>> {
        let mut entry = self.entry.lock();
        if entry.0.as_ptr() != Arc::as_ptr(ring) {
            *entry = (Arc::downgrade(ring), ring.with_exchanged(&self.content));
        }
        entry.1.clone()
    }

    /// Adds to a lease what the API key declares of the caller, as `Access::declare` says.
    pub(super) fn declare(&self, said: &mut Said) -> Result<(), MetadataError> {
        let Rendered {
            owner, metadata, ..
        } = &self.content.rendered;
        // Claims that make no owner must not leave the choice to the caller.
        let owner = owner.as_ref().and_then(|owner| {
            let label = self.label.get(..Owner::MAX_CHARS);
            let label = label.unwrap_or(&self.label);
            Owner::new(owner).or_else(|_| Owner::new(label)).ok()
        });
        if owner.is_none() && metadata.is_empty() {
            return Ok(());
        }
        let named = said.metadata.iter();
        let named = named.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let mut entries: BTreeMap<_, _> = named.collect();
        if let Some(owner) = owner
            && let Some(named) = said.owner.replace(owner)
            && said.owner.as_ref() != Some(&named)
        {
            entries.insert(SAID_OWNER.to_owned(), named.as_str().to_owned());
        }
        entries.extend(metadata.clone());
        said.metadata = Metadata::new(entries)?;
        Ok(())
    }
}
