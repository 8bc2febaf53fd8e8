//! What a lock remembers of orders, and the memory of a tombstone, which keeps it.

use std::{sync::Arc, time::Duration};

use crate::{
    lock::{OrderNumber, Owner, TokenHash},
    store::contract::{GrantedOrder, OrderGrant},
};

use super::lease::{Moment, WallClock};

/// What a tombstone remembers, and until when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Memory {
    pub(crate) until: Moment,
    /// What a lock remembers of orders. It outlives the lease, so it is kept like a tombstone. `None` in each tombstone
    /// of something that has ended.
    pub(crate) order: Option<Box<HighestOrder>>,
}

/// The highest order for which a lock was granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HighestOrder {
    pub(crate) number: OrderNumber,
    /// The order that was remembered before, which counts again if the grant is taken back.
    pub(crate) previous: Option<OrderNumber>,
    /// The grant; `None` if a caller has set the order, or if a later grant was taken back.
    pub(crate) grant: Option<OrderedGrant>,
}

/// The grant for which a lock remembers an order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OrderedGrant {
    pub(crate) token: TokenHash,
    /// When the lock was granted, in microseconds since 1970. It is only shown. The wall clock also counts the time in
    /// which the machine was down.
    pub(crate) at: i64,
    pub(crate) by: Option<Arc<str>>,
    pub(crate) owner: Option<Owner>,
}

// === impl Memory ===

impl Memory {
    pub(super) fn order_until(&self, now: Moment) -> Option<&HighestOrder> {
        self.order.as_deref().filter(|_| self.until > now)
    }
}

impl From<Moment> for Memory {
    fn from(until: Moment) -> Self {
        Self { until, order: None }
    }
}

// === impl HighestOrder ===

impl HighestOrder {
    /// Whether the lock remembers the order because of the lease of this token.
    pub(super) fn is_by(&self, token: &TokenHash) -> bool {
        self.grant.as_ref().is_some_and(|it| it.token == *token)
    }

    pub(super) fn shown(&self, wall: WallClock, now: Moment) -> GrantedOrder {
        let grant = self.grant.as_ref().map(|grant| OrderGrant {
            ago: Duration::from_micros(
                wall.time(now)
                    .saturating_sub(grant.at)
                    .max(0)
                    .unsigned_abs(),
            ),
            by: grant.by.clone(),
            owner: grant.owner.clone(),
        });
        GrantedOrder {
            number: self.number,
            grant: grant.map(Box::new),
        }
    }
}

impl From<OrderNumber> for HighestOrder {
    fn from(number: OrderNumber) -> Self {
        Self {
            number,
            previous: None,
            grant: None,
        }
    }
}
