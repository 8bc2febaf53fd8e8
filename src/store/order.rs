//! The order that a lock remembers, a change of it, and the comparison of waiters.

use std::{sync::Arc, time::Duration};

use crate::lock::{OrderNumber, Owner, SupersedeHash};

/// How a waiter is compared with another one of the same caller, of which the older leaves the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Superseding {
    /// The hash that both waiters have.
    pub hash: SupersedeHash,
    /// How much older the waiter is than its position, because earlier requests of its caller have waited.
    pub waited_before: Duration,
}

/// The highest order for which a lock was granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantedOrder {
    /// The order.
    pub number: OrderNumber,
    /// The grant; `None` if a caller has set the order, or if a later grant was taken back.
    pub grant: Option<Box<OrderGrant>>,
}

/// The grant by which a lock remembers an order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrderGrant {
    /// How long ago the lock was granted.
    pub ago: Duration,
    /// The name of the API key that was granted the lock; `None` at a gateway without keys.
    pub by: Option<Arc<str>>,
    /// The owner text of the lease.
    pub owner: Option<Owner>,
}

/// A change of the order that a lock remembers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OrderChange {
    /// The order that the caller has seen; `None` if the lock remembered none.
    pub seen: Option<OrderNumber>,
    /// The order that the lock remembers from now on; `None` for none.
    pub new: Option<OrderNumber>,
}

/// The answer to a change of an order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OrderSetting {
    /// The lock remembers the new order.
    Set,
    /// The lock remembers another order than the caller has seen. Nothing was changed.
    Changed(Option<GrantedOrder>),
}

// === impl Superseding ===

impl From<SupersedeHash> for Superseding {
    fn from(hash: SupersedeHash) -> Self {
        Self {
            hash,
            waited_before: Duration::ZERO,
        }
    }
}
