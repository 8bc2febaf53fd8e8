//! The queue of one name.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::lock::{IdempotencyHash, TokenHash};

use super::{moment::Moment, queued::Queued};

/// The queue of one name, by the order of arrival.
#[derive(Debug, Default)]
pub(super) struct Queue {
    by_order: BTreeMap<u64, Queued>,
    /// Also those who were superseded last.
    by_token: HashMap<TokenHash, u64>,
    by_key: HashMap<IdempotencyHash, u64>,
    /// When each position is given up.
    ends: BTreeSet<(Moment, u64)>,
}

// === impl Queue ===

impl Queue {
    /// How many are queued.
    pub(super) fn len(&self) -> usize {
        self.by_order.len()
    }

    /// Whether nobody is queued.
    pub(super) fn is_empty(&self) -> bool {
        self.by_order.is_empty()
    }

    /// The next to be granted the lock.
    pub(super) fn head(&self) -> Option<u64> {
        self.by_order.keys().next().copied()
    }

    /// All positions, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, &Queued)> {
        self.by_order.iter().map(|(order, queued)| (*order, queued))
    }

    /// Who is at a position.
    pub(super) fn at(&self, order: u64) -> Option<&Queued> {
        self.by_order.get(&order)
    }

    /// The position that this attempt has, or had until it was superseded.
    pub(super) fn of_token(&self, token: &TokenHash) -> Option<(u64, &Queued)> {
        self.find(self.by_token.get(token))
    }

    /// The position that was taken under this idempotency key.
    pub(super) fn under_key(&self, key: &IdempotencyHash) -> Option<(u64, &Queued)> {
        self.find(self.by_key.get(key))
    }

    /// The positions whose time is over, and that are not cleared away yet. Only those of this name are
    /// looked at.
    pub(super) fn over(&self, now: Moment) -> impl Iterator<Item = u64> {
        let over = self.ends.range(..=(now, u64::MAX));
        over.map(|(_, order)| *order)
    }

    /// How many are before a position. Counts them: only asked for those who do not come last.
    pub(super) fn ahead_of(&self, order: u64) -> usize {
        match self.by_order.last_key_value() {
            Some((last, _)) if *last == order => self.by_order.len() - 1,
            _ => self.by_order.range(..order).count(),
        }
    }

    /// Fills or empties a position. Answers who was there.
    pub(super) fn put(&mut self, order: u64, queued: Option<Queued>) -> Option<Queued> {
        let before = self.by_order.remove(&order);
        if let Some(before) = &before {
            self.ends.remove(&(before.until, order));
            for token in tokens(before) {
                self.by_token.remove(&token);
            }
            if let Some(idempotency) = &before.attempt.idempotency {
                self.by_key.remove(&idempotency.hash);
            }
        }
        if let Some(queued) = queued {
            for token in tokens(&queued) {
                self.by_token.insert(token, order);
            }
            if let Some(idempotency) = &queued.attempt.idempotency {
                self.by_key.insert(idempotency.hash, order);
            }
            self.ends.insert((queued.until, order));
            self.by_order.insert(order, queued);
        }
        before
    }

    fn find(&self, order: Option<&u64>) -> Option<(u64, &Queued)> {
        let order = *order?;
        Some((order, self.by_order.get(&order)?))
    }
}

fn tokens(queued: &Queued) -> impl Iterator<Item = TokenHash> {
    [Some(queued.attempt.token), queued.superseded]
        .into_iter()
        .flatten()
}
