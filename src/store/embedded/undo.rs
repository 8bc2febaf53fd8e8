//! What every row was before the changes that are not durable yet, and so what is durable.

use std::collections::{BTreeMap, HashMap};

use crate::{
    lock::{FencingToken, LockName, TokenHash},
    store::contract::{Holder, SHOWN_HOLDERS, SharedHolders},
};

use super::{
    held::{Held, Sharers, count},
    lease::{Lease, Moment},
    row::Tombstone,
};

/// What every changed row was before the change.
#[derive(Debug, Default)]
pub(super) struct UndoLog {
    pub(super) exclusive: HashMap<LockName, Option<Lease>>,
    pub(super) shared: HashMap<LockName, SharedUndo>,
    pub(super) tombstones: HashMap<Tombstone, Option<Moment>>,
}

/// What the leases of a lock that is or was shared were before the change.
#[derive(Debug)]
pub(super) struct SharedUndo {
    /// Whether anybody held the lock, in either mode.
    pub(super) was_held: bool,
    pub(super) leases: BTreeMap<FencingToken, Option<Lease>>,
}

/// What durably holds a lock, or did before its time was over.
#[derive(Debug, Clone, Copy)]
pub(super) enum DurablyHeld<'state> {
    /// A lease that is alone.
    Exclusive(&'state Lease),
    /// Those that share it now, and what those were whose change is not durable.
    Shared(
        Option<&'state Sharers>,
        Option<&'state BTreeMap<FencingToken, Option<Lease>>>,
    ),
}

// === impl UndoLog ===

impl UndoLog {
    /// What durably holds a lock that is held so now.
    pub(super) fn durable<'state>(
        &'state self,
        name: &LockName,
        held: Option<&'state Held>,
    ) -> DurablyHeld<'state> {
        let alone = match self.exclusive.get(name) {
            Some(before) => before.as_ref(),
            None => held.and_then(Held::alone),
        };
        if let Some(lease) = alone {
            return DurablyHeld::Exclusive(lease);
        }
        let undo = self.shared.get(name).map(|undo| &undo.leases);
        DurablyHeld::Shared(held.and_then(Held::sharers), undo)
    }
}

// === impl DurablyHeld ===

impl<'state> DurablyHeld<'state> {
    /// Its living leases, in no order.
    pub(super) fn leases(self, now: Moment) -> impl Iterator<Item = &'state Lease> + use<'state> {
        let (alone, sharers, undo) = match self {
            Self::Exclusive(lease) => (Some(lease), None, None),
            Self::Shared(sharers, undo) => (None, sharers, undo),
        };
        let unchanged = sharers.into_iter().flat_map(move |it| it.living(now));
        let unchanged =
            unchanged.filter(move |it| undo.is_none_or(|undo| !undo.contains_key(&it.fence)));
        let before = undo.into_iter().flat_map(BTreeMap::values).flatten();
        alone
            .into_iter()
            .chain(before)
            .filter(move |lease| lease.lives(now))
            .chain(unchanged)
    }

    /// The living lease of a token.
    pub(super) fn of_token(self, token: &TokenHash, now: Moment) -> Option<&'state Lease> {
        let lease = match self {
            Self::Exclusive(lease) => Some(lease),
            Self::Shared(sharers, undo) => {
                let mut before = undo.into_iter().flat_map(BTreeMap::values).flatten();
                let before = before.find(|lease| lease.token == *token);
                before.or_else(|| {
                    let lease = sharers?.of_token(token)?;
                    let is_new = undo.is_some_and(|undo| undo.contains_key(&lease.fence));
                    (!is_new).then_some(lease)
                })
            }
        };
        lease.filter(|lease| lease.token == *token && lease.lives(now))
    }

    /// What is told of it now; none if nobody holds the lock.
    pub(super) fn holder(self, now: Moment) -> Option<Holder> {
        match self {
            Self::Exclusive(lease) => lease.lives(now).then(|| Holder::Lease(lease.held(now))),
            Self::Shared(sharers, None) => {
                let shown = sharers.map(|sharers| sharers.shown(now));
                shown.filter(|it| it.count > 0).map(Holder::Shared)
            }
            Self::Shared(_, Some(_)) => {
                let mut leases: Vec<_> = self.leases(now).collect();
                let shared_by = count(leases.len());
                leases.sort_unstable_by_key(|lease| lease.expiry());
                let shown = leases.into_iter().take(SHOWN_HOLDERS);
                let holders = SharedHolders {
                    leases: shown.map(|lease| lease.held(now)).collect(),
                    count: shared_by,
                };
                (shared_by > 0).then_some(Holder::Shared(holders))
            }
        }
    }
}
