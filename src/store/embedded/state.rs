//! Everything the embedded store remembers, and what of it is not durable yet.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::{
    lock::{FencingToken, LockName, TokenHash},
    store::{
        StoreError,
        contract::{Holder, Inspection, Loss, TOMBSTONE},
    },
};

use super::{
    lease::Lease,
    moment::Moment,
    row_key::{RowKey, Tombstone},
    rows::Rows,
};

/// The leases and tombstones, and the way back to what is durable.
///
/// Operations change the memory at once. Until [`State::settle`] every change can be undone by
/// [`State::undo`], and [`State::inspect`] answers as if there had been none.
#[derive(Debug, Default)]
pub(super) struct State {
    leases: HashMap<LockName, Lease>,
    /// When each lease expires. The fence keeps leases apart that expire together.
    expiries: BTreeMap<(Moment, FencingToken), LockName>,
    tombstones: HashMap<Tombstone, Moment>,
    tombstone_ends: BTreeSet<(Moment, Tombstone)>,
    /// The highest fencing token that was ever granted. It is never taken back: a number that was
    /// lost to a failed write leaves a gap.
    fence: u64,
    /// What every changed row was before the change.
    undo: Undo,
    /// Counts the changes that somebody asked for; clearing away what has ended is none.
    changes: u64,
}

#[derive(Debug, Default)]
struct Undo {
    leases: HashMap<LockName, Option<Lease>>,
    tombstones: HashMap<Tombstone, Option<Moment>>,
}

// === impl State ===

impl State {
    /// What a file holds, with the highest fencing token known.
    pub(super) fn new(
        leases: Vec<(LockName, Lease)>,
        tombstones: Vec<(Tombstone, Moment)>,
        fence: u64,
    ) -> Self {
        let highest = leases.iter().map(|(_name, lease)| lease.fence.get()).max();
        let mut state = Self {
            fence: fence.max(highest.unwrap_or_default()),
            ..Self::default()
        };
        for (name, lease) in leases {
            state.put(&name, Some(lease));
        }
        for (tombstone, until) in tombstones {
            state.put_tombstone(tombstone, Some(until));
        }
        state.settle();
        state
    }

    /// The highest fencing token that was ever granted.
    pub(super) fn fence(&self) -> u64 {
        self.fence
    }

    /// How many changes were asked for so far.
    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    /// Whether nothing is remembered at all.
    pub(super) fn is_empty(&self) -> bool {
        self.leases.is_empty() && self.tombstones.is_empty()
    }

    /// Shows who holds a lock, as far as it is durable.
    pub(super) fn inspect(&self, name: &LockName, now: Moment) -> Inspection {
        let durable = match self.undo.leases.get(name) {
            Some(before) => before.as_ref(),
            None => self.leases.get(name),
        };
        match durable.filter(|lease| lease.lives(now)) {
            Some(lease) => Inspection::Held(Holder::Lease(lease.held(now))),
            None => Inspection::Free,
        }
    }

    /// Clears away at most `limit` leases and tombstones whose time is over. Says whether that was
    /// all.
    pub(super) fn sweep(&mut self, now: Moment, limit: usize) -> bool {
        for _ in 0..limit {
            if let Some(((end, _fence), name)) = self.expiries.first_key_value()
                && *end <= now
            {
                let name = name.clone();
                self.clear_if_over(&name, now);
            } else if let Some((end, tombstone)) = self.tombstone_ends.first()
                && *end <= now
            {
                let tombstone = tombstone.clone();
                self.put_tombstone(tombstone, None);
            } else {
                return true;
            }
        }
        false
    }

    /// The rows of which the file does not know yet. None if there was no change.
    pub(super) fn unwritten(&self) -> Rows {
        let mut rows = Rows::default();
        for (name, before) in &self.undo.leases {
            let now = self.leases.get(name);
            if now != before.as_ref() {
                rows.lease(name, now);
            }
        }
        for (tombstone, before) in &self.undo.tombstones {
            let now = self.tombstones.get(tombstone).copied();
            if now != *before {
                rows.tombstone(tombstone, now);
            }
        }
        rows
    }

    /// Every row.
    pub(super) fn all(&self) -> Rows {
        let mut rows = Rows::default();
        for (name, lease) in &self.leases {
            rows.lease(name, Some(lease));
        }
        for (tombstone, until) in &self.tombstones {
            rows.tombstone(tombstone, Some(*until));
        }
        rows
    }

    /// All changes are durable now.
    pub(super) fn settle(&mut self) {
        self.undo.leases.clear();
        self.undo.tombstones.clear();
    }

    /// Goes back to what is durable.
    pub(super) fn undo(&mut self) {
        let undo = std::mem::take(&mut self.undo);
        for (name, before) in undo.leases {
            self.put(&name, before);
        }
        for (tombstone, before) in undo.tombstones {
            self.put_tombstone(tombstone, before);
        }
        self.settle();
    }

    // --- what the operations are made of

    /// The living lease of a name. One that is over is cleared away first.
    pub(super) fn living(&mut self, name: &LockName, now: Moment) -> Option<&Lease> {
        self.clear_if_over(name, now);
        self.leases.get(name)
    }

    /// What a token that does not hold the lock is told.
    pub(super) fn loss(&self, name: &LockName) -> Loss {
        if self.leases.contains_key(name) {
            Loss::HeldByAnother
        } else {
            Loss::Free
        }
    }

    /// The next fencing token.
    pub(super) fn next_fence(&mut self) -> Result<FencingToken, StoreError> {
        let fence =
            FencingToken::new(self.fence + 1).map_err(|_beyond| StoreError::FenceExhausted)?;
        self.fence = fence.get();
        Ok(fence)
    }

    /// Makes this the lease of the name.
    pub(super) fn set(&mut self, name: &LockName, lease: Lease) {
        self.changes += 1;
        self.put(name, Some(lease));
    }

    /// Ends the lease of a name. Its idempotency key is used from now on; `released` says whether
    /// its token may be released again.
    pub(super) fn end(&mut self, name: &LockName, released: bool, now: Moment) {
        self.changes += 1;
        if let Some(lease) = self.put(name, None)
            && let Some(key) = lease.key
        {
            self.entomb(&RowKey::used_key(&key.idempotency.hash), now);
            if released {
                self.entomb(&RowKey::released(name, &lease.token), now);
            }
        }
    }

    /// Refuses an attempt from now on.
    pub(super) fn withdraw(&mut self, name: &LockName, token: &TokenHash, now: Moment) {
        self.changes += 1;
        self.entomb(&RowKey::given_back(name, token), now);
    }

    /// Whether the tombstone stands.
    pub(super) fn remembers(&self, key: &RowKey, now: Moment) -> bool {
        self.tombstones
            .get(key.as_bytes())
            .is_some_and(|until| *until > now)
    }

    fn clear_if_over(&mut self, name: &LockName, now: Moment) {
        let over = self.leases.get(name).is_some_and(|lease| !lease.lives(now));
        if over
            && let Some(lease) = self.put(name, None)
            && let Some(key) = lease.key
        {
            self.entomb(&RowKey::used_key(&key.idempotency.hash), lease.expires_at);
        }
    }

    fn entomb(&mut self, key: &RowKey, ended_at: Moment) {
        self.put_tombstone(key.into(), Some(ended_at.after(TOMBSTONE)));
    }

    fn put(&mut self, name: &LockName, lease: Option<Lease>) -> Option<Lease> {
        let before = self.leases.remove(name);
        if let Some(before) = &before {
            self.expiries.remove(&(before.expires_at, before.fence));
        }
        if let Some(lease) = lease {
            self.expiries
                .insert((lease.expires_at, lease.fence), name.clone());
            self.leases.insert(name.clone(), lease);
        }
        self.undo
            .leases
            .entry(name.clone())
            .or_insert_with(|| before.clone());
        before
    }

    fn put_tombstone(&mut self, tombstone: Tombstone, until: Option<Moment>) {
        let before = self.tombstones.remove(&tombstone);
        if let Some(before) = before {
            self.tombstone_ends.remove(&(before, tombstone.clone()));
        }
        if let Some(until) = until {
            self.tombstone_ends.insert((until, tombstone.clone()));
            self.tombstones.insert(tombstone.clone(), until);
        }
        self.undo.tombstones.entry(tombstone).or_insert(before);
    }
}
