//! Everything the embedded store remembers, and what of it is not durable yet.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    ops::Bound,
};

use crate::{
    lock::{FencingToken, HeldLease, LockName, TokenHash},
    store::{
        StoreError,
        contract::{Holder, Inspection, TOMBSTONE},
        parking::{News, Parking},
        positions::Position,
    },
};

use super::{
    catalog::Catalog,
    lease::{Lease, Moment},
    queue::{Notice, Queued, Queues},
    row::{self, RowKey, Rows, Tombstone},
};

/// The leases, tombstones and queues, and the way back to what is durable.
///
/// Operations change the memory at once. Until [`State::commit`] every change can be undone by
/// [`State::rollback`], and [`State::inspect`] answers as if there had been none.
#[derive(Debug, Default)]
pub(super) struct State {
    leases: HashMap<LockName, Lease>,
    /// Those that are durable, for a list.
    catalog: Catalog,
    /// When each lease expires. The fence keeps leases apart that expire together.
    expiries: BTreeMap<(Moment, FencingToken), LockName>,
    queues: Queues,
    /// Those of the expiries that somebody is queued for.
    awaited: BTreeSet<(Moment, FencingToken)>,
    /// Where those who are queued wait.
    parking: Parking,
    /// What they are to be told when all changes are durable.
    notices: Vec<Notice>,
    tombstones: HashMap<Tombstone, Moment>,
    tombstone_ends: BTreeSet<(Moment, Tombstone)>,
    /// The highest fencing token that was ever granted. It is never taken back: a number that was
    /// lost to a failed write leaves a gap.
    fence: u64,
    /// How many bytes the rows of all leases and tombstones take in the log.
    live_bytes: u64,
    /// What every changed row was before the change.
    undo: UndoLog,
    /// Counts the changes that somebody asked for; clearing away what has ended is none.
    changes: u64,
}

/// How far a copy of everything has come: the last row that was copied.
#[derive(Debug)]
pub(super) enum CopyCursor {
    Leases(Option<(Moment, FencingToken)>),
    /// All leases were.
    Tombstones((Moment, Tombstone)),
}

// === impl CopyCursor ===

impl CopyCursor {
    /// Nothing was copied so far.
    pub(super) const START: Self = Self::Leases(None);
}

#[derive(Debug, Default)]
struct UndoLog {
    leases: HashMap<LockName, Option<Lease>>,
    tombstones: HashMap<Tombstone, Option<Moment>>,
}

// === impl State ===

impl State {
    /// What a log holds, with the highest fencing token known.
    pub(super) fn new(
        leases: Vec<(LockName, Lease)>,
        tombstones: Vec<(Tombstone, Moment)>,
        fence: u64,
        parking: Parking,
    ) -> Self {
        let highest = leases.iter().map(|(_name, lease)| lease.fence.get()).max();
        let mut state = Self {
            fence: fence.max(highest.unwrap_or_default()),
            parking,
            ..Self::default()
        };
        for (name, lease) in leases {
            state.put(&name, Some(lease));
        }
        for (tombstone, until) in tombstones {
            state.put_tombstone(tombstone, Some(until));
        }
        let none = state.commit();
        debug_assert!(none.is_empty(), "nobody is queued yet");
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

    /// How many rows the log holds when it holds all this.
    pub(super) fn len(&self) -> u64 {
        let rows = self.leases.len() + self.tombstones.len();
        u64::try_from(rows).unwrap_or(u64::MAX)
    }

    /// How many bytes they take there.
    pub(super) fn live_bytes(&self) -> u64 {
        self.live_bytes
    }

    /// Shows who holds a lock and who is queued for it, as far as it is durable.
    pub(super) fn inspect(&self, name: &LockName, now: Moment) -> Inspection {
        let (queue, waiters) = self.queues.durable_head(name, now);
        Inspection {
            holder: self
                .durable(name, now)
                .map(|lease| Holder::Lease(lease.held(now))),
            queue,
            waiters,
        }
    }

    /// The living lease of a name, as far as it is durable.
    pub(super) fn durable(&self, name: &LockName, now: Moment) -> Option<&Lease> {
        let durable = match self.undo.leases.get(name) {
            Some(before) => before.as_ref(),
            None => self.leases.get(name),
        };
        durable.filter(|lease| lease.lives(now))
    }

    /// How many are queued for a name.
    pub(super) fn waiters(&self, name: &LockName, now: Moment) -> u64 {
        self.queues.len(name, now)
    }

    /// The names that have a durable lease, living or not yet cleared away.
    pub(super) fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// When the first of those leases expires that somebody is queued for.
    pub(super) fn next_hand_off(&self) -> Option<Moment> {
        self.awaited.first().map(|(moment, _fence)| *moment)
    }

    /// Clears away at most `limit` leases, places and tombstones whose time is over, and hands off
    /// what becomes free. Says whether that was all.
    pub(super) fn sweep(&mut self, now: Moment, limit: usize) -> bool {
        for _ in 0..limit {
            if let Some(((end, _fence), name)) = self.expiries.first_key_value()
                && *end <= now
            {
                let name = name.clone();
                self.clear_if_over(&name, now);
            } else if let Some((name, order)) = self.queues.over(now) {
                self.drop_position(&name, order);
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

    /// The rows of which the log does not know yet. None if there was no change.
    pub(super) fn unwritten(&self) -> Rows {
        let mut rows = Rows::default();
        for (name, before) in &self.undo.leases {
            let now = self.leases.get(name);
            if now == before.as_ref() {
                continue;
            }
            match now {
                Some(now) => rows.lease(name, now),
                None => rows.no_lease(name),
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

    /// Every row, in parts that a record can hold.
    pub(super) fn all(&self) -> Vec<Rows> {
        let mut parts = Vec::new();
        let mut rows = Rows::default();
        let mut pass_on = |rows: &mut Rows| {
            if rows.is_full() {
                parts.push(std::mem::take(rows));
            }
        };
        for (name, lease) in &self.leases {
            rows.lease(name, lease);
            pass_on(&mut rows);
        }
        for (tombstone, until) in &self.tombstones {
            rows.tombstone(tombstone, Some(*until));
            pass_on(&mut rows);
        }
        parts.push(rows);
        parts
    }

    /// Appends the next rows of a copy of everything, at most so many. Answers how far it has come, or none
    /// if that was all.
    ///
    /// The copy goes by what ends first. Whatever changes meanwhile is written for its change, so a row whose
    /// end moves from behind the cursor to before it is not missed.
    pub(super) fn copy(
        &self,
        from: &CopyCursor,
        limit: usize,
        rows: &mut Rows,
    ) -> Option<CopyCursor> {
        let mut left = limit;
        let mut tombstone = None;
        match from {
            CopyCursor::Leases(last) => {
                let behind = (
                    last.map_or(Bound::Unbounded, Bound::Excluded),
                    Bound::Unbounded,
                );
                for (&expiry, name) in self.expiries.range(behind) {
                    rows.lease(name, &self.leases[name]);
                    left -= 1;
                    if left == 0 {
                        return Some(CopyCursor::Leases(Some(expiry)));
                    }
                }
            }
            CopyCursor::Tombstones(last) => tombstone = Some(last),
        }
        let behind = (
            tombstone.map_or(Bound::Unbounded, Bound::Excluded),
            Bound::Unbounded,
        );
        for end in self.tombstone_ends.range(behind) {
            rows.tombstone(&end.1, Some(end.0));
            left -= 1;
            if left == 0 {
                return Some(CopyCursor::Tombstones(end.clone()));
            }
        }
        None
    }

    /// All changes are durable now, and these are to be told of them.
    #[must_use = "somebody waits for the news"]
    pub(super) fn commit(&mut self) -> Vec<Notice> {
        for (name, before) in self.undo.leases.drain() {
            let (was, is) = (before.is_some(), self.leases.contains_key(&name));
            self.catalog.note(name, was, is);
        }
        self.undo.tombstones.clear();
        self.queues.commit();
        std::mem::take(&mut self.notices)
    }

    /// Goes back to what is durable.
    pub(super) fn rollback(&mut self) {
        let undo = std::mem::take(&mut self.undo);
        for (name, before) in undo.leases {
            self.put(&name, before);
        }
        for (tombstone, before) in undo.tombstones {
            self.put_tombstone(tombstone, before);
        }
        for name in self.queues.rollback() {
            self.watch(&name);
        }
        // What they say has not come about.
        self.notices.clear();
        self.undo = UndoLog::default();
    }

    // --- what the operations are made of

    /// The queues.
    pub(super) fn queues(&self) -> &Queues {
        &self.queues
    }

    /// Where those who are queued wait.
    pub(super) fn parking(&self) -> &Parking {
        &self.parking
    }

    /// A position behind everybody.
    pub(super) fn next_position(&mut self) -> u64 {
        self.queues.next_position()
    }

    /// Whether the name has a lease, living or not yet cleared away.
    pub(super) fn is_held(&self, name: &LockName) -> bool {
        self.leases.contains_key(name)
    }

    /// What is told of the lease of a name.
    pub(super) fn held(&self, name: &LockName, now: Moment) -> Option<HeldLease> {
        self.leases.get(name).map(|lease| lease.held(now))
    }

    /// Has an attempt told its news as soon as all changes are durable.
    pub(super) fn announce(&mut self, name: &LockName, token: TokenHash, news: News) {
        self.notices.push(Notice {
            name: name.clone(),
            token,
            news,
        });
    }

    /// Fills or empties a position in a queue. Answers who was there.
    pub(super) fn put_queued(
        &mut self,
        name: &LockName,
        order: u64,
        queued: Option<Queued>,
    ) -> Option<Queued> {
        let before = self.queues.put(name, order, queued);
        self.watch(name);
        before
    }

    /// The living lease of a name. One that is over is cleared away first, and the lock is handed
    /// off.
    pub(super) fn living(&mut self, name: &LockName, now: Moment) -> Option<&Lease> {
        self.clear_if_over(name, now);
        self.leases.get(name)
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
        if let Some(lease) = self.put(name, None) {
            self.remember_ended(name, &lease, released, now);
        }
    }

    /// Refuses an attempt from now on.
    pub(super) fn withdraw(&mut self, name: &LockName, token: &TokenHash, now: Moment) {
        self.changes += 1;
        self.add_tombstone(&RowKey::given_back(name, token), now);
    }

    /// Whether the tombstone stands.
    pub(super) fn remembers(&self, key: &RowKey, now: Moment) -> bool {
        self.tombstones
            .get(key.as_bytes())
            .is_some_and(|until| *until > now)
    }

    fn clear_if_over(&mut self, name: &LockName, now: Moment) {
        let over = self.leases.get(name).is_some_and(|lease| !lease.lives(now));
        if over && let Some(lease) = self.put(name, None) {
            self.remember_ended(name, &lease, false, lease.expires_at);
            self.hand_off(name, now);
        }
    }

    /// Remembers a lease that has ended by its idempotency key. If nobody has heard of the lease,
    /// the key is as good as new: its caller may come late, and join the queue again.
    fn remember_ended(&mut self, name: &LockName, lease: &Lease, released: bool, ended_at: Moment) {
        if let Some(key) = &lease.key
            && !lease.is_undelivered()
        {
            self.add_tombstone(&RowKey::used_key(&key.idempotency.hash), ended_at);
            if released {
                self.add_tombstone(&RowKey::released(name, &lease.token), ended_at);
            }
        }
    }

    /// Keeps in mind when the lease of a name ends if somebody is queued for it.
    fn watch(&mut self, name: &LockName) {
        if let Some(lease) = self.leases.get(name) {
            let expiry = (lease.expires_at, lease.fence);
            if self.queues.of(name).is_some() {
                self.awaited.insert(expiry);
            } else {
                self.awaited.remove(&expiry);
            }
        }
    }

    pub(super) fn add_tombstone(&mut self, key: &RowKey, ended_at: Moment) {
        self.put_tombstone(key.into(), Some(ended_at.after(TOMBSTONE)));
    }

    /// Makes this, or nothing, the lease of the name, whoever asked for it.
    pub(super) fn put(&mut self, name: &LockName, lease: Option<Lease>) -> Option<Lease> {
        let before = self.leases.remove(name);
        if let Some(before) = &before {
            let expiry = (before.expires_at, before.fence);
            self.expiries.remove(&expiry);
            self.awaited.remove(&expiry);
            self.live_bytes -= row::len_of_lease(name, before);
        }
        if let Some(lease) = lease {
            self.live_bytes += row::len_of_lease(name, &lease);
            self.expiries
                .insert((lease.expires_at, lease.fence), name.clone());
            self.leases.insert(name.clone(), lease);
            self.watch(name);
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
            self.live_bytes -= row::len_of_tombstone(&tombstone);
        }
        if let Some(until) = until {
            self.live_bytes += row::len_of_tombstone(&tombstone);
            self.tombstone_ends.insert((until, tombstone.clone()));
            self.tombstones.insert(tombstone.clone(), until);
        }
        self.undo.tombstones.entry(tombstone).or_insert(before);
    }
}

// === Positions ===
//
// Tells those who watch it where they stand, on the state in memory.

// === impl State ===

impl State {
    /// Tells these attempts where they stand in the queue of a lock. Walks through it once, however
    /// many they are.
    pub(super) fn publish_positions(&self, name: &LockName, watched: Vec<TokenHash>, now: Moment) {
        let Some(queue) = self.queues().of(name) else {
            return;
        };
        let watched: HashSet<_> = watched.into_iter().collect();
        let waiters = self.queues().len(name, now);
        let queued = queue.iter().filter(|(_, queued)| queued.until > now);
        for (ahead, (_, queued)) in (0..).zip(queued) {
            let token = &queued.attempt.token;
            if watched.contains(token) {
                let position = Position { ahead, waiters };
                self.parking().positions().publish(token, position);
            }
        }
    }
}
