//! Orders: each lock remembers the highest order for which it was granted (clause 17).

use std::time::Duration;

use crate::{
    lock::{LockName, OrderNumber, Said, TokenHash},
    store::{
        StoreError,
        contract::{Acquisition, Attempt, GrantedOrder, OrderChange, OrderSetting},
        embedded::records::RowKey,
    },
};

use super::{
    State,
    highest_order::{HighestOrder, Memory, OrderedGrant},
    lease::{Lease, Moment},
    operations::differs,
    queue::Queued,
};

/// How many bytes the row of an order has at most: less than the longest names of a lock and of an API key, and the
/// longest owner, together.
const LONGEST_ORDER: u64 = 2_048;

// === impl State ===

impl State {
    /// What the lock remembers, durably or not.
    fn highest_order(&self, name: &LockName, now: Moment) -> Option<&HighestOrder> {
        let memory = self.tombstones.get(RowKey::order(name).as_bytes());
        memory?.order_until(now)
    }

    /// Whether the lock was granted for a higher order than that of a request.
    pub(super) fn is_outdated(&self, name: &LockName, said: &Said, now: Moment) -> bool {
        compared(said).is_some_and(|number| {
            let highest = self.highest_order(name, now);
            highest.is_some_and(|highest| highest.number > number)
        })
    }

    /// What the lock remembers, if it was granted for a higher order than that of a request.
    pub(super) fn newer_order(
        &self,
        name: &LockName,
        said: &Said,
        now: Moment,
    ) -> Option<GrantedOrder> {
        let highest = self.highest_order(name, now);
        let highest = highest.filter(|_| self.is_outdated(name, said, now))?;
        Some(highest.shown(self.wall, now))
    }

    /// The refusal of an attempt because of its order, if it is refused. It gives up its position in the queue
    /// then, but not a position under its key that was asked for in other words.
    pub(super) fn refuse_order(
        &mut self,
        attempt: &Attempt,
        position: Option<&(u64, Queued)>,
        now: Moment,
    ) -> Option<Acquisition> {
        if let Some(newer) = self.newer_order(&attempt.name, &attempt.terms.said, now) {
            if let Some((own, _)) = position.filter(|(_, it)| !differs(attempt, &it.attempt)) {
                self.drop_position(&attempt.name, *own, now);
            }
            return Some(Acquisition::OutdatedOrder(newer));
        }
        let refused = !self.may_have_order(attempt, now);
        refused.then_some(Acquisition::TooManyOrders)
    }

    /// Whether an order of the attempt may be remembered: the attempt has none, or the lock remembers one, or few other
    /// locks do.
    fn may_have_order(&mut self, attempt: &Attempt, now: Moment) -> bool {
        if compared(&attempt.terms.said).is_none()
            || self.highest_order(&attempt.name, now).is_some()
            || self.remembered_orders < self.orders.most
        {
            return true;
        }
        while self.clear_tombstone(now) {}
        self.remembered_orders < self.orders.most
    }

    /// Whether a full disk has no room for the order of a waiter.
    pub(super) fn lacks_room_for_order(&self, said: &Said) -> bool {
        compared(said).is_some() && self.check_room(LONGEST_ORDER).is_err()
    }

    /// Remembers the order of a lease, of which a caller may be told from now on.
    pub(super) fn remember_order(&mut self, name: &LockName, lease: &Lease, now: Moment) {
        let Some(number) = compared(&lease.said) else {
            return;
        };
        let highest = self.highest_order(name, now);
        if highest.is_some_and(|highest| highest.is_by(&lease.token)) {
            return;
        }
        let order = HighestOrder {
            number,
            previous: highest.map(|highest| highest.number),
            grant: Some(OrderedGrant {
                token: lease.token,
                at: self.wall.time(lease.granted_at),
                by: lease.said.order.as_ref().and_then(|order| order.by.clone()),
                owner: lease.said.owner.clone(),
            }),
        };
        self.put_order(name, Some(order), now);
    }

    /// Forgets the order of the lease of this token, of which no caller was told, or which was not used.
    pub(super) fn forget_order(&mut self, name: &LockName, token: &TokenHash) {
        let key = RowKey::order(name);
        let memory = self.tombstones.get(key.as_bytes());
        if let Some(memory) = memory
            && let Some(order) = memory.order.as_deref().filter(|order| order.is_by(token))
        {
            let until = memory.until;
            let before = order.previous.map(|previous| Memory {
                until,
                order: Some(Box::new(HighestOrder::from(previous))),
            });
            self.put_tombstone((&key).into(), before);
        }
    }

    /// Sets what the lock remembers, if it remembers what the caller has seen.
    pub(crate) fn set_order(
        &mut self,
        name: &LockName,
        change: OrderChange,
        now: Moment,
    ) -> Result<OrderSetting, StoreError> {
        if change.new.is_some() {
            self.check_room(LONGEST_ORDER)?;
        }
        self.clear_what_is_over(name, now);
        let highest = self.highest_order(name, now);
        let number = highest.map(|highest| highest.number);
        if number != change.seen && number != change.new {
            let shown = highest.map(|highest| highest.shown(self.wall, now));
            return Ok(OrderSetting::Changed(shown));
        }
        self.put_order(name, change.new.map(HighestOrder::from), now);
        // The head of the queue may be outdated now, and have kept the waiters behind it from sharing the lock.
        self.hand_off(name, now);
        Ok(OrderSetting::Set)
    }

    /// What the lock remembers durably, as an answer shows it.
    pub(super) fn durable_order(&self, name: &LockName, now: Moment) -> Option<GrantedOrder> {
        let memory = self.durable_memory(&RowKey::order(name))?;
        Some(memory.order_until(now)?.shown(self.wall, now))
    }

    /// Whether a waiter stays in the queue although the newer attempt has the same key of `supersedes`: it has a higher
    /// order, or else has arrived later. A dead waiter does not stay.
    pub(super) fn stays(&self, waiter: &Queued, newer: &Queued, now: Moment) -> bool {
        let order = |queued: &Queued| compared(&queued.attempt.terms.said);
        let stays = match order(waiter).zip(order(newer)) {
            Some((theirs, mine)) if theirs != mine => theirs > mine,
            Some(_) | None => waiter.arrived > newer.arrived,
        };
        stays && !self.is_over(waiter, now) && self.is_attended_or_kept(waiter)
    }

    fn put_order(&mut self, name: &LockName, order: Option<HighestOrder>, now: Moment) {
        let until = now.after(Duration::from_millis(self.orders.keep_ms));
        let memory = order.map(|order| Memory {
            until,
            order: Some(Box::new(order)),
        });
        self.put_tombstone((&RowKey::order(name)).into(), memory);
    }
}

/// The order that is compared and remembered. A rollback is neither.
fn compared(said: &Said) -> Option<OrderNumber> {
    let order = said.order.as_deref()?;
    order.rollback.is_none().then_some(order.number)
}
