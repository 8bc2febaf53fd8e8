//! Looks after a lease whose time should be over.

use std::time::Duration;

use crate::store::{AnyStore, Store, StoreError, contract::Holder};

use super::tracker::LeaseKey;

/// What became of a lease.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// It lives, for so long.
    Living(Duration),
    /// It does not hold the lock.
    Gone,
    /// The store gave no answer.
    Unknown,
}

/// Asks the store what became of a lease.
pub(super) async fn look(store: AnyStore, key: LeaseKey) -> (LeaseKey, Found) {
    let found = match store.inspect(&key.name).await {
        Ok(inspection) => match inspection.holder {
            Some(Holder::Lease(lease)) if lease.fence == key.fence => {
                Found::Living(lease.expires_in)
            }
            Some(Holder::Lease(_) | Holder::Foreign { .. }) | None => Found::Gone,
        },
        Err(
            StoreError::Unavailable(_)
            | StoreError::Indeterminate(_)
            | StoreError::ForeignData { .. }
            | StoreError::FenceExhausted,
        ) => Found::Unknown,
    };
    (key, found)
}
