//! Looks after a lease whose time should be over.

use std::time::Duration;

use crate::{
    lock::{FencingToken, LockName},
    store::{AnyStore, Store, StoreError, contract::Holder},
};

/// What became of a lease.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum LeaseCheck {
    /// It lives, for so long.
    Living(Duration),
    /// It does not hold the lock.
    Gone,
    /// It is none of those that are shown, because others end sooner. If it lives, somebody has renewed it, and word of
    /// that is on its way.
    NotShown,
    /// The store gave no answer.
    Unknown,
}

/// Asks the store what became of a lease.
pub(super) async fn check_lease(
    store: AnyStore,
    name: LockName,
    fence: FencingToken,
) -> LeaseCheck {
    match store.inspect(&name).await {
        Ok(inspection) => match inspection.holder {
            Some(Holder::Lease(lease)) if lease.fence == fence => {
                LeaseCheck::Living(lease.expires_in)
            }
            Some(Holder::Shared(holders)) => {
                let mut leases = holders.leases.iter();
                match leases.find(|lease| lease.fence == fence) {
                    Some(lease) => LeaseCheck::Living(lease.expires_in),
                    None if holders.count > holders.leases.len() as u64 => LeaseCheck::NotShown,
                    None => LeaseCheck::Gone,
                }
            }
            Some(Holder::Lease(_) | Holder::Foreign { .. }) | None => LeaseCheck::Gone,
        },
        Err(
            StoreError::Unavailable(_)
            | StoreError::Indeterminate(_)
            | StoreError::ForeignData { .. }
            | StoreError::FenceExhausted,
        ) => LeaseCheck::Unknown,
    }
}
