//! The mode in which a request wants a lock, and the locks of a group with their own terms.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::{
    Holder,
    http::without_nulls,
    lock::{GroupNames, Limit, LockName, OrderNumber},
};

/// Whether a lease holds its lock alone or together with others.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AcquireMode {
    /// The lease holds the lock as the gateway's operator has declared: alone, if nothing is declared.
    #[default]
    Declared,
    /// The lease holds the lock alone, even if the lock is declared as shared.
    Exclusive,
    /// The lease holds the lock together with other shared leases.
    Shared {
        /// The lease is granted while fewer than `limit` leases hold the lock, and gets a slot. The limit counts
        /// for this grant only, so use the same limit for every request of a lock. `None`: the gateway's limit, and
        /// no slot.
        limit: Option<Limit>,
    },
}

/// The locks of a group to acquire. Made of [`GroupNames`], all locks have the mode of the request. Made of a map, each
/// lock has its own mode, and the mode of the request does not count: with `deploy` exclusive and `openai` shared with
/// the limit 20, the group holds `deploy` alone and one of the twenty places of `openai`.
#[derive(Debug, Clone)]
pub struct GroupLocks(BTreeMap<LockName, OwnTerms>);

/// The terms that one lock of a group has for itself.
#[derive(Debug, Clone, Copy, Default)]
struct OwnTerms {
    /// `None`: the mode of the request.
    mode: Option<AcquireMode>,
    /// `None`: the order of the request, if the lock is held alone.
    order: Option<OrderNumber>,
}

// === impl AcquireMode ===

impl AcquireMode {
    /// The fields `mode` and `limit` of a request.
    pub(crate) fn wire(self) -> (Option<&'static str>, Option<u16>) {
        match self {
            Self::Declared => (None, None),
            Self::Exclusive => (Some("exclusive"), None),
            Self::Shared { limit } => (Some("shared"), limit.map(Limit::get)),
        }
    }

    /// Whether a request with this mode could hold a lock beside these holders. `taken`: the number of all holders and
    /// rests.
    pub(crate) fn has_room(self, holders: &[Holder], taken: u64) -> bool {
        let is_shared = |holder: &Holder| holder.mode.as_deref() == Some("shared");
        match self {
            Self::Declared | Self::Exclusive => false,
            Self::Shared { limit } => {
                !holders.is_empty()
                    && holders.iter().all(is_shared)
                    && limit.is_none_or(|limit| taken < u64::from(limit.get()))
            }
        }
    }
}

// === impl GroupLocks ===

impl GroupLocks {
    /// The mode that this lock has for itself.
    pub(crate) fn own_mode(&self, name: Option<&str>) -> Option<AcquireMode> {
        let mut locks = self.0.iter();
        let own = locks.find(|(lock, _)| Some(lock.as_str()) == name);
        own.and_then(|(_, own)| own.mode)
    }

    /// The names of the locks, in the order in which a gateway acquires them.
    pub(crate) fn names(&self) -> impl Iterator<Item = &LockName> + Clone {
        self.0.keys()
    }

    /// The field `names` of a request, and the mode that the request has beside it. `of_request`: the mode of the locks
    /// without a mode of their own.
    pub(crate) fn wire(&self, of_request: AcquireMode) -> (Value, AcquireMode) {
        let terms = self.0.values();
        let mut terms = terms.map(|own| (own.mode.unwrap_or(of_request), own.order));
        let first = terms.clone().next().map_or(of_request, |(mode, _)| mode);
        // Every version of the gateway knows one mode for all locks.
        if terms.all(|(mode, order)| mode == first && order.is_none()) {
            return (self.0.keys().map(LockName::as_str).collect(), first);
        }
        let locks = self.0.iter().map(|(name, own)| {
            let (mode, limit) = own.mode.unwrap_or(of_request).wire();
            let order = own.order.map(OrderNumber::get);
            if mode.is_none() && order.is_none() {
                return json!(name.as_str());
            }
            let name = name.as_str();
            without_nulls(json!({"name": name, "mode": mode, "limit": limit, "order": order}))
        });
        (locks.collect(), AcquireMode::Declared)
    }

    /// Gives one lock of the group an order of its own ([`crate::AcquireRequest::order`]). A name that is not in the group
    /// changes nothing.
    #[must_use]
    pub fn with_order(mut self, name: &LockName, order: OrderNumber) -> Self {
        let own = self.0.entry(name.clone());
        own.and_modify(|own| own.order = Some(order));
        self
    }
}

impl From<GroupNames> for GroupLocks {
    fn from(names: GroupNames) -> Self {
        Self::from(&names)
    }
}

impl From<&GroupNames> for GroupLocks {
    fn from(names: &GroupNames) -> Self {
        let names = names.iter().cloned();
        Self(names.map(|name| (name, OwnTerms::default())).collect())
    }
}

impl From<BTreeMap<LockName, AcquireMode>> for GroupLocks {
    fn from(modes: BTreeMap<LockName, AcquireMode>) -> Self {
        let own = |mode| OwnTerms {
            mode: Some(mode),
            order: None,
        };
        let modes = modes.into_iter();
        Self(modes.map(|(name, mode)| (name, own(mode))).collect())
    }
}
