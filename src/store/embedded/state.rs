//! Everything the embedded store remembers, and what of it is not durable yet.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet, hash_map::Entry},
    ops::Bound,
};

use crate::{
    lock::{FencingToken, LockName, Mode, TokenHash},
    store::{
        StoreError,
        contract::{Inspection, TOMBSTONE},
        parking::{News, Parking},
        positions::Position,
    },
};

use super::{
    catalog::Catalog,
    held::{Held, Sharers},
    lease::{Expiry, Lease, LeaseRequest, Moment},
    queue::{Notice, Queue, Queued, Queues},
    row::{self, RowKey, Rows, Tombstone},
    undo::{DurablyHeld, SharedUndo, UndoLog},
};

/// How much longer a request to release makes the row of a lease: the longest name of a key and the longest reason, and
/// less than as much again.
const LONGEST_REQUEST: u64 = 2_048;

/// The leases, tombstones and queues, and the way back to what is durable.
///
/// Operations change the memory at once. Until [`State::commit`] every change can be undone by
/// [`State::rollback`], and [`State::inspect`] answers as if there had been none.
#[derive(Debug, Default)]
pub(super) struct State {
    held: HashMap<LockName, Held>,
    /// Those that are durable, for a list.
    catalog: Catalog,
    /// When each lease expires.
    expiries: BTreeMap<Expiry, LockName>,
    queues: Queues,
    /// Those of the expiries at which the head of a queue may be granted the lock.
    awaited: BTreeSet<Expiry>,
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
    /// How many leases are durable.
    durable_leases: usize,
    /// Whether there may be no more of them: the disk is full.
    is_bounded: bool,
    /// The locks whose heads might be granted them if there might be more.
    held_back: HashSet<LockName>,
    /// Counts the changes that somebody asked for; clearing away what has ended is none.
    changes: u64,
}

/// How far a copy of everything has come: the last row that was copied.
#[derive(Debug)]
pub(super) enum CopyCursor {
    Leases(Option<Expiry>),
    /// All leases were.
    Tombstones((Moment, Tombstone)),
}

// === impl CopyCursor ===

impl CopyCursor {
    /// Nothing was copied so far.
    pub(super) const START: Self = Self::Leases(None);
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
            state.put(&name, lease);
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
        let rows = self.expiries.len() + self.tombstones.len();
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
            holder: self.durable(name).holder(now),
            queue,
            waiters,
        }
    }

    /// What holds a lock, as far as it is durable.
    pub(super) fn durable(&self, name: &LockName) -> DurablyHeld<'_> {
        self.undo.durable(name, self.held.get(name))
    }

    /// How many are queued for a name.
    pub(super) fn waiters(&self, name: &LockName, now: Moment) -> u64 {
        self.queues.len(name, now)
    }

    /// The names that have a durable lease, living or not yet cleared away.
    pub(super) fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// When the first of those leases expires at whose end somebody who is queued may be granted a lock.
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
                self.clear_what_is_over(&name, now);
            } else if let Some((name, order)) = self.queues.over(now) {
                self.drop_position(&name, order, now);
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
        for (name, before) in &self.undo.exclusive {
            let now = self.held.get(name).and_then(Held::alone);
            if now == before.as_ref() {
                continue;
            }
            match now {
                Some(now) => rows.lease(name, now),
                None => rows.no_lease(name),
            }
        }
        for (name, undo) in &self.undo.shared {
            let sharers = self.held.get(name).and_then(Held::sharers);
            for (fence, before) in &undo.leases {
                let now = sharers.and_then(|sharers| sharers.with_fence(*fence));
                if now == before.as_ref() {
                    continue;
                }
                match now {
                    Some(now) => rows.lease(name, now),
                    None => rows.no_shared_lease(name, *fence),
                }
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

    /// Appends the next rows of a copy of everything, until these have so many bytes. Answers how far the copy has
    /// come, or none if that was all.
    ///
    /// The copy goes by what ends first. Whatever changes meanwhile is written for its change, so a row whose
    /// end moves from behind the cursor to before it is not missed.
    pub(super) fn copy(
        &self,
        from: &CopyCursor,
        enough: usize,
        rows: &mut Rows,
    ) -> Option<CopyCursor> {
        let mut tombstone = None;
        match from {
            CopyCursor::Leases(last) => {
                let behind = (
                    last.map_or(Bound::Unbounded, Bound::Excluded),
                    Bound::Unbounded,
                );
                for (&expiry, name) in self.expiries.range(behind) {
                    let lease = self.held[name].with_fence(expiry.1);
                    rows.lease(name, lease.expect("each expiry is that of a lease"));
                    if rows.as_bytes().len() >= enough {
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
            if rows.as_bytes().len() >= enough {
                return Some(CopyCursor::Tombstones(end.clone()));
            }
        }
        None
    }

    /// All changes are durable now, and these are to be told of them.
    #[must_use = "somebody waits for the news"]
    pub(super) fn commit(&mut self) -> Vec<Notice> {
        for (name, before) in self.undo.exclusive.drain() {
            if !self.undo.shared.is_empty() && self.undo.shared.contains_key(&name) {
                continue;
            }
            let (was, is) = (before.is_some(), self.held.contains_key(&name));
            self.catalog.note(name, was, is);
        }
        for (name, undo) in self.undo.shared.drain() {
            let is = self.held.contains_key(&name);
            self.catalog.note(name, undo.was_held, is);
        }
        self.durable_leases = self.expiries.len();
        self.undo.tombstones.clear();
        self.queues.commit();
        std::mem::take(&mut self.notices)
    }

    /// Goes back to what is durable.
    pub(super) fn rollback(&mut self) {
        let undo = std::mem::take(&mut self.undo);
        // First what has come, so that nothing stands beside what comes back.
        for name in undo.exclusive.keys() {
            if let Some(lease) = self.held.get(name).and_then(Held::alone) {
                self.remove(name, lease.fence);
            }
        }
        for (name, undo) in &undo.shared {
            for fence in undo.leases.keys() {
                self.remove(name, *fence);
            }
        }
        for (name, before) in undo.exclusive {
            if let Some(lease) = before {
                self.put(&name, lease);
            }
        }
        for (name, undo) in undo.shared {
            for lease in undo.leases.into_values().flatten() {
                self.put(&name, lease);
            }
        }
        for (tombstone, before) in undo.tombstones {
            self.put_tombstone(tombstone, before);
        }
        for name in self.queues.rollback() {
            self.watch(&name);
            // Its head may have been held back until there was room, and is as it was.
            self.held_back.insert(name);
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

    /// How many bytes a request to release can make the leases of a lock longer.
    pub(super) fn longest_request(&self, name: &LockName) -> u64 {
        let leases = self
            .held(name)
            .map_or(0, |held| held.sharers().map_or(1, Sharers::len));
        LONGEST_REQUEST * leases as u64
    }

    /// What holds a lock, living or not yet cleared away.
    pub(super) fn held(&self, name: &LockName) -> Option<&Held> {
        self.held.get(name)
    }

    /// Whether there may not be one lease more.
    pub(super) fn is_full(&self) -> bool {
        self.is_bounded && self.expiries.len() >= self.durable_leases
    }

    /// Takes note of a lock whose head is granted it when there may be more leases again.
    pub(super) fn hold_back(&mut self, name: &LockName) {
        self.held_back.insert(name.clone());
    }

    /// Says whether there may be no more leases than are durable. If there may, those are granted who were held
    /// back.
    pub(super) fn bound(&mut self, is_bounded: bool, now: Moment) {
        self.is_bounded = is_bounded;
        if !is_bounded && !self.held_back.is_empty() {
            for name in std::mem::take(&mut self.held_back) {
                self.hand_off(&name, now);
            }
        }
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

    /// What holds a lock now. What is over is cleared away first, and the lock is handed off.
    pub(super) fn living(&mut self, name: &LockName, now: Moment) -> Option<&Held> {
        self.clear_what_is_over(name, now);
        self.held.get(name)
    }

    /// The living lease of a token; see [`State::living`].
    pub(super) fn living_of(
        &mut self,
        name: &LockName,
        token: &TokenHash,
        now: Moment,
    ) -> Option<&Lease> {
        self.living(name, now)?.of_token(token)
    }

    /// The next fencing token.
    pub(super) fn next_fence(&mut self) -> Result<FencingToken, StoreError> {
        let fence =
            FencingToken::new(self.fence + 1).map_err(|_beyond| StoreError::FenceExhausted)?;
        self.fence = fence.get();
        Ok(fence)
    }

    /// Makes this a lease of the name, in the place of the one that it is.
    pub(super) fn set(&mut self, name: &LockName, lease: Lease) {
        self.changes += 1;
        self.put(name, lease);
    }

    /// Ends a lease of a name. Its idempotency key is used from now on; `released` says whether
    /// its token may be released again.
    pub(super) fn end(
        &mut self,
        name: &LockName,
        fence: FencingToken,
        released: bool,
        now: Moment,
    ) {
        self.changes += 1;
        if let Some(lease) = self.remove(name, fence) {
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

    fn clear_what_is_over(&mut self, name: &LockName, now: Moment) {
        let Some(held) = self.held.get(name) else {
            return;
        };
        // Who is alone is followed by the head, and those who are behind one that is outdated share the lock.
        let mut passes_on = held.sharers().is_some() && self.has_outdated_head(name, now);
        let mut over = held.over(now);
        while let Some(fence) = over {
            if let Some(lease) = self.remove(name, fence) {
                self.remember_ended(name, &lease, false, lease.expires_at);
            }
            passes_on = true;
            over = self.held.get(name).and_then(|held| held.over(now));
        }
        if passes_on {
            self.hand_off(name, now);
        }
    }

    fn has_outdated_head(&self, name: &LockName, now: Moment) -> bool {
        let head = self.queues.of(name).and_then(Queue::head);
        head.is_some_and(|(_, queued)| queued.until <= now)
    }

    /// Remembers a lease that has ended by its idempotency key. If nobody has heard of the lease,
    /// the key is as good as new: its caller may come late, and join the queue again.
    fn remember_ended(&mut self, name: &LockName, lease: &Lease, released: bool, ended_at: Moment) {
        let is_over = |request: &LeaseRequest| request.until <= ended_at;
        if !released && lease.request.as_deref().is_some_and(is_over) {
            // It has ended because it was asked for, or is told so.
            self.add_tombstone(&RowKey::broken(name, &lease.token), ended_at);
        }
        if let Some(key) = &lease.key
            && !lease.is_undelivered()
        {
            self.add_tombstone(&RowKey::used_key(&key.idempotency.hash), ended_at);
            if released {
                self.add_tombstone(&RowKey::released(name, &lease.token), ended_at);
            }
        }
    }

    /// Keeps in mind when the head of the queue of a name may be granted the lock.
    fn watch(&mut self, name: &LockName) {
        let Some(held) = self.held.get_mut(name) else {
            return;
        };
        let queue = self.queues.of(name);
        match held {
            Held::Exclusive(lease) => {
                let expiry = lease.expiry();
                if queue.is_some() {
                    self.awaited.insert(expiry);
                } else {
                    self.awaited.remove(&expiry);
                }
            }
            Held::Shared(sharers) => {
                let first = queue.and_then(Queue::head);
                let room_at = first.and_then(|(_, it)| sharers.room_at(it.attempt.sharing));
                if room_at != sharers.awaited {
                    sharers.awaited.map(|before| self.awaited.remove(&before));
                    self.awaited.extend(room_at);
                    sharers.awaited = room_at;
                }
            }
        }
    }

    pub(super) fn add_tombstone(&mut self, key: &RowKey, ended_at: Moment) {
        self.put_tombstone(key.into(), Some(ended_at.after(TOMBSTONE)));
    }

    /// Makes this a lease of the name, in the place of the one that it is, whoever asked for it.
    pub(super) fn put(&mut self, name: &LockName, lease: Lease) {
        let (mode, expiry) = (lease.mode, lease.expiry());
        let len = row::len_of_lease(name, &lease);
        self.note_whether_held(name, mode);
        let before = match self.held.entry(name.clone()) {
            Entry::Occupied(held) => held.into_mut().put(lease),
            Entry::Vacant(free) => {
                free.insert(Held::by(lease));
                None
            }
        };
        if let Some(before) = &before {
            self.forget(name, before);
        }
        self.live_bytes += len;
        self.expiries.insert(expiry, name.clone());
        self.watch(name);
        let (_, fence) = expiry;
        self.note_before(name, mode, fence, before.as_ref());
    }

    /// Removes a lease of the name, whoever asked for that.
    pub(super) fn remove(&mut self, name: &LockName, fence: FencingToken) -> Option<Lease> {
        let lease = match self.held.remove(name)? {
            Held::Exclusive(lease) if lease.fence == fence => lease,
            other @ (Held::Exclusive(_) | Held::Shared(_)) => {
                self.held.insert(name.clone(), other);
                return self.remove_sharer(name, fence);
            }
        };
        self.forget(name, &lease);
        self.note_before(name, Mode::Exclusive, fence, Some(&lease));
        Some(lease)
    }

    fn remove_sharer(&mut self, name: &LockName, fence: FencingToken) -> Option<Lease> {
        let mode = self.held.get(name)?.sharers()?.with_fence(fence)?.mode;
        self.note_whether_held(name, mode);
        let Held::Shared(sharers) = self.held.get_mut(name)? else {
            return None;
        };
        let lease = sharers.remove(fence)?;
        if sharers.is_empty() {
            if let Some(awaited) = sharers.awaited {
                self.awaited.remove(&awaited);
            }
            self.held.remove(name);
        } else {
            self.watch(name);
        }
        self.forget(name, &lease);
        self.note_before(name, mode, fence, Some(&lease));
        Some(lease)
    }

    /// Nothing is to be done at the end of a lease that was removed.
    fn forget(&mut self, name: &LockName, lease: &Lease) {
        let expiry = lease.expiry();
        self.expiries.remove(&expiry);
        if lease.mode == Mode::Exclusive {
            self.awaited.remove(&expiry);
        }
        self.live_bytes -= row::len_of_lease(name, lease);
    }

    /// Keeps in mind whether anybody held a lock before it was shared, or those changed who share it.
    fn note_whether_held(&mut self, name: &LockName, mode: Mode) {
        if mode.is_shared() && !self.undo.shared.contains_key(name) {
            let was_held = match self.undo.exclusive.get(name) {
                Some(before) => before.is_some(),
                None => self.held.contains_key(name),
            };
            let undo = SharedUndo {
                was_held,
                leases: BTreeMap::new(),
            };
            self.undo.shared.insert(name.clone(), undo);
        }
    }

    /// Keeps in mind what a lease was before it was changed.
    fn note_before(
        &mut self,
        name: &LockName,
        mode: Mode,
        fence: FencingToken,
        before: Option<&Lease>,
    ) {
        match mode {
            Mode::Exclusive => {
                let undo = self.undo.exclusive.entry(name.clone());
                undo.or_insert_with(|| before.cloned());
            }
            Mode::Shared { .. } => {
                if let Some(undo) = self.undo.shared.get_mut(name) {
                    let undo = undo.leases.entry(fence);
                    undo.or_insert_with(|| before.cloned());
                }
            }
        }
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
