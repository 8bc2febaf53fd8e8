//! The state of the embedded store: leases, tombstones and queues, and the changes that are not durable yet.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet, btree_map, hash_map::Entry},
    ops::Bound,
    time::Duration,
};

use tokio::time::Instant;

use crate::{
    clock::Clock,
    config::OrderLimits,
    lock::{FencingToken, HeldLease, LockName, TokenHash},
    store::{
        StoreError,
        contract::{Attempt, FenceCheck, FenceQuery, Holder, Inspection, SHOWN_HOLDERS, TOMBSTONE},
        embedded::records::{self, RowKey, Rows, Tombstone},
        parking::{News, Parking, Position},
    },
};

use super::{
    held::{Catalog, Held, Sharers, shown},
    highest_order::Memory,
    lease::{Expiry, Lease, LeaseRequest, Moment, WallClock},
    queue::{Notice, Queues},
};

/// How many bytes a release request adds to the row of a lease at most: less than twice the longest name of an API key
/// and the longest reason.
const LONGEST_REQUEST: u64 = 2_048;
/// How many of the next lease ends are searched for a lock with waiters. A later end is found when these have passed.
const EXPIRIES_LOOKED_AT: usize = 16;

/// The leases, tombstones and queues, and the earlier values of everything that is not durable yet.
///
/// Operations change the state at once. Until [`State::commit`], [`State::rollback`] can undo every change, and
/// [`State::inspect`] answers as if there had been no change.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// The leases of each lock: leases that live, or have ended and are not yet cleared away.
    pub(super) held: HashMap<LockName, Held>,
    /// The names of all locks that are held, durably or not, for lists.
    pub(super) catalog: Catalog,
    /// The lock of each lease, by the end of the lease.
    expiries: BTreeMap<Expiry, LockName>,
    pub(super) queues: Queues,
    /// The waiters of this process, to which news are delivered.
    pub(super) parking: Parking,
    /// News for waiters, to be delivered when all changes are durable.
    notices: Vec<Notice>,
    pub(super) tombstones: HashMap<Tombstone, Memory>,
    tombstone_ends: BTreeSet<(Moment, Tombstone)>,
    /// The highest fencing token that was ever granted. A rollback does not lower it: a fencing token that was
    /// lost in a failed write leaves a gap.
    fence: u64,
    /// How many bytes the rows of all leases and tombstones take in the log.
    live_bytes: u64,
    undo: Undo,
    /// How many leases were durable at the last commit.
    durable_leases: usize,
    shortage: Option<Shortage>,
    /// Locks whose next waiter could not be granted the lock on a full disk; the waiter is granted it when the
    /// disk has room.
    held_back: HashSet<LockName>,
    /// The wall clock, by which reservations end, as it was when the reservations were last moved.
    pub(crate) wall: WallClock,
    /// The locks that are reserved.
    reserved: HashSet<LockName>,
    /// How long orders are remembered, and of how many locks.
    pub(crate) orders: OrderLimits,
    /// Of how many locks an order is remembered, including orders whose time is over.
    pub(super) remembered_orders: u64,
}

/// The value of every row that changed since the last commit, from before its first change.
#[derive(Debug, Default)]
struct Undo {
    leases: BTreeMap<LeaseRow, Option<Lease>>,
    tombstones: HashMap<Tombstone, Option<Memory>>,
}

/// The row of a lease: the name of the lock and, if the lease shares the lock, its fencing token.
type LeaseRow = (LockName, Option<FencingToken>);

/// A shortage of space: the disk is full, and no waiter is granted a lock unless a lease has ended.
#[derive(Debug)]
pub(crate) struct Shortage {
    /// The answer to every command that needs more room on the full disk.
    pub(crate) error: StoreError,
    /// How many bytes of rows fit into the existing log file and reserve.
    pub(crate) room: u64,
}

/// The last row that a copy of all rows has copied; the copy continues after this row.
#[derive(Debug)]
pub(crate) enum CopyCursor {
    Leases(Bound<Expiry>),
    /// All leases are copied; the copy continues after this tombstone.
    Tombstones(Bound<(Moment, Tombstone)>),
}

// === impl CopyCursor ===

impl CopyCursor {
    /// The copy of all rows has not begun.
    pub(crate) const START: Self = Self::Leases(Bound::Unbounded);
}

// === impl State ===

impl State {
    /// Restores the state from the rows of a log. `fence` is the highest known fencing token.
    pub(crate) fn new(
        leases: Vec<(LockName, Lease)>,
        tombstones: Vec<(Tombstone, Memory)>,
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
        for (tombstone, memory) in tombstones {
            state.put_tombstone(tombstone, Some(memory));
        }
        let none = state.commit();
        debug_assert!(none.is_empty(), "nobody is queued yet");
        state
    }

    /// When the reservation that an attempt asks for ends, if it asks for one.
    pub(super) fn reservation_end(&self, attempt: &Attempt) -> Option<Moment> {
        let until = attempt.terms.reservation()?.until();
        Some(self.wall.moment(until))
    }

    /// The wall clock, if it was set since the reservations were last moved; `None` if no lock is reserved.
    pub(crate) fn wall_if_set(&self, clock: &dyn Clock) -> Option<WallClock> {
        let is_needed = !self.reserved.is_empty();
        let wall = is_needed.then(|| self.wall.look(clock));
        wall.filter(|wall| *wall != self.wall)
    }

    /// Moves the ends of all reservations that live, if the wall clock was set. The log need not know: each start
    /// computes these ends again.
    pub(crate) fn follow_wall(&mut self, clock: &dyn Clock, now: Moment) {
        let wall = self.wall.look(clock);
        if wall == self.wall {
            return;
        }
        self.wall = wall;
        for name in &self.reserved {
            if let Some(Held::Exclusive(lease)) = self.held.get_mut(name)
                && lease.lives(now)
            {
                self.expiries.remove(&lease.expiry());
                lease.follow(wall);
                self.expiries.insert(lease.expiry(), name.clone());
            }
        }
        // A reservation whose end is not durable yet may come back.
        let before = self.undo.leases.values_mut().flatten();
        for lease in before.filter(|lease| lease.lives(now)) {
            lease.follow(wall);
        }
    }

    /// The highest fencing token that the store ever granted.
    pub(crate) fn fence(&self) -> u64 {
        self.fence
    }

    /// How many rows the log needs for all leases and tombstones.
    pub(crate) fn len(&self) -> u64 {
        let rows = self.expiries.len() + self.tombstones.len();
        u64::try_from(rows).unwrap_or(u64::MAX)
    }

    /// The first duration if the log has rows, the second if these are only orders.
    pub(crate) fn heartbeat(&self, of_any: Duration, of_orders: Duration) -> Option<Duration> {
        let rows = self.len();
        let longest = if rows > self.remembered_orders {
            of_any
        } else {
            of_orders
        };
        (rows > 0).then_some(longest)
    }

    /// How many bytes the rows of all leases and tombstones take in the log.
    pub(crate) fn live_bytes(&self) -> u64 {
        self.live_bytes
    }

    /// Shows the durable holder and queue of a lock.
    pub(crate) fn inspect(&self, name: &LockName, now: Moment) -> Inspection {
        let (queue, waiters) = self.queues.durable_head(name, now);
        Inspection {
            holder: self.durable_holder(name, now),
            queue,
            waiters,
            granted_order: self.durable_order(name, now),
        }
    }

    /// Says whether a durable lease with this fencing token holds the lock.
    pub(crate) fn check_fence(&self, query: &FenceQuery, now: Moment) -> FenceCheck {
        let FenceQuery { name, fence, .. } = query;
        let protects = |lease: &&Lease| !lease.is_undelivered() && !lease.is_resting();
        let lease = self.durable(
            (name, now),
            |held| held.with_fence(*fence),
            |lease| lease.fence == *fence,
        );
        match lease.filter(protects) {
            Some(lease) => FenceCheck::Held {
                left: lease.expires_at.since(now),
                as_of: Instant::now(),
            },
            None => FenceCheck::Stale {
                is_outrun: self.has_larger(query, now),
            },
        }
    }

    /// The living leases that a caller has been told of, with their locks and tokens.
    pub(crate) fn found(&self, now: Moment) -> Vec<(LockName, TokenHash, HeldLease)> {
        let leases = self.held.iter().flat_map(|(name, held)| {
            let told = held
                .living(now)
                .filter(|lease| !lease.is_undelivered() && !lease.is_resting());
            told.map(move |lease| (name.clone(), lease.token, lease.held(now)))
        });
        leases.collect()
    }

    /// Whether a living durable lease of the lock has a larger fencing token.
    fn has_larger(&self, FenceQuery { name, fence, .. }: &FenceQuery, now: Moment) -> bool {
        let newer = |lease: &&Lease| lease.fence > *fence && lease.lives(now);
        let held = self.held.get(name).into_iter();
        let mut unchanged = held
            .flat_map(|held| held.newer(*fence))
            .filter(|lease| !self.undo.has_changed(name, lease));
        let mut before = self.undo.leases_before(name);
        before.any(|lease| newer(&lease)) || unchanged.any(|lease| newer(&lease))
    }

    /// The living durable leases of a lock, in no order.
    pub(crate) fn durable_leases(
        &self,
        name: &LockName,
        now: Moment,
    ) -> impl Iterator<Item = &Lease> {
        let is_changed = self.undo.rows(name).next().is_some();
        let held = self.held.get(name).into_iter();
        let unchanged = held
            .flat_map(move |held| held.living(now))
            .filter(move |lease| !is_changed || !self.undo.has_changed(name, lease));
        let before = self
            .undo
            .leases_before(name)
            .filter(move |lease| lease.lives(now));
        before.chain(unchanged)
    }

    /// The living durable lease of a token.
    pub(crate) fn durable_lease(
        &self,
        name: &LockName,
        token: &TokenHash,
        now: Moment,
    ) -> Option<&Lease> {
        self.durable(
            (name, now),
            |held| held.of_token(token),
            |lease| lease.token == *token,
        )
    }

    /// The living durable lease that `find` finds in the state with the changes that are not durable, and `is_it`
    /// recognises in the state before these.
    fn durable<'a>(
        &'a self,
        (name, now): (&LockName, Moment),
        find: impl FnOnce(&'a Held) -> Option<&'a Lease>,
        is_it: impl Fn(&Lease) -> bool,
    ) -> Option<&'a Lease> {
        let unchanged = self.held.get(name).and_then(find);
        unchanged
            .filter(|lease| !self.undo.has_changed(name, lease))
            .or_else(|| {
                let rows = self.undo.rows(name);
                rows.filter_map(|(_, before)| before.as_ref())
                    .find(|lease| is_it(lease))
            })
            .filter(|lease| lease.lives(now))
    }

    /// The durable holder of a lock, if it has one.
    pub(crate) fn durable_holder(&self, name: &LockName, now: Moment) -> Option<Holder> {
        let held = self.held.get(name);
        if let Some(held) = held
            && self.undo.rows(name).next().is_none()
        {
            return held.living(now).next().map(|_| held.holder(now));
        }
        // Only the leases that are shown and those that have changed are visited: thousands may share the lock.
        let lives = |lease: &&Lease| lease.lives(now);
        let is_new = |(_, shared): &LeaseRow| {
            let lease = held.and_then(|held| held.at(*shared));
            lease.as_ref().is_some_and(lives)
        };
        let mut leases: Vec<_> = self.undo.leases_before(name).filter(lives).collect();
        let rests = |leases: &[&Lease]| leases.iter().filter(|it| it.is_resting()).count();
        let new: Vec<_> = self
            .undo
            .rows(name)
            .filter(|(row, _)| is_new(row))
            .collect();
        let new_rests = new.iter().filter_map(|((_, shared), _)| held?.at(*shared));
        let new_rests = new_rests.filter(|lease| lease.is_resting()).count();
        let living = leases.len() + held.map_or(0, |held| held.count(now)) - new.len();
        let resting = rests(&leases) + held.map_or(0, |held| held.rests(now)) - new_rests;
        let unchanged = |is_rest: bool| {
            let living = held.into_iter().flat_map(|held| held.living(now));
            let unchanged = living.filter(|lease| !self.undo.has_changed(name, lease));
            unchanged.filter(move |lease| lease.is_resting() == is_rest)
        };
        leases.extend(unchanged(false).take(SHOWN_HOLDERS));
        if resting > 0 {
            leases.extend(unchanged(true).take(SHOWN_HOLDERS));
        }
        leases.sort_unstable_by_key(|lease| lease.expiry());
        match leases[..] {
            [] => None,
            [lease] if !lease.mode.is_shared() => Some(Holder::Lease(lease.held(now))),
            _ => {
                let counts = (living, resting);
                Some(Holder::Shared(shown(leases.iter().copied(), counts, now)))
            }
        }
    }

    /// The next end of a lease whose lock has waiters, or an earlier moment, because only the first ends are searched.
    pub(crate) fn next_hand_off(&self) -> Option<Moment> {
        if self.queues.is_empty() {
            return None;
        }
        let mut first = self.expiries.iter().take(EXPIRIES_LOOKED_AT);
        let mut last = None;
        let awaited = first.find(|((moment, _fence), name)| {
            last = Some(*moment);
            self.queues.get(name).is_some()
        });
        awaited.map_or(last, |((moment, _fence), _name)| Some(*moment))
    }

    /// Clears away at most `limit` leases, positions and tombstones that have ended, and grants the locks that become
    /// free to their waiters. Returns whether nothing is left to clear away.
    pub(crate) fn sweep(&mut self, now: Moment, limit: usize) -> bool {
        for _ in 0..limit {
            if let Some(((end, _fence), name)) = self.expiries.first_key_value()
                && *end <= now
            {
                let name = name.clone();
                self.clear_what_is_over(&name, now);
            } else if let Some((name, order)) = self.queues.over(now) {
                self.drop_position(&name, order, now);
            } else if !self.clear_tombstone(now) {
                return true;
            }
        }
        false
    }

    /// Clears away a tombstone whose time is over. Returns whether there was one.
    pub(super) fn clear_tombstone(&mut self, now: Moment) -> bool {
        let first = self.tombstone_ends.first();
        let over = first.filter(|(end, _)| *end <= now).cloned();
        let is_over = over.is_some();
        if let Some((_, tombstone)) = over {
            self.put_tombstone(tombstone, None);
        }
        is_over
    }

    /// The changed rows that are not in the log yet. Empty if no row has changed.
    pub(crate) fn unwritten(&self) -> Rows {
        let mut rows = Rows::default();
        for ((name, shared), before) in &self.undo.leases {
            let now = self.held.get(name).and_then(|held| held.at(*shared));
            if now != before.as_ref() {
                rows.lease(name, *shared, now);
            }
        }
        for (tombstone, before) in &self.undo.tombstones {
            let now = self.tombstones.get(tombstone);
            if now != before.as_ref() {
                rows.tombstone(tombstone, now);
            }
        }
        rows
    }

    /// Appends the next rows of a copy of the state until `rows` has `enough` bytes. Returns how far the copy
    /// has come; `None` if all rows are copied.
    ///
    /// The copy is ordered by the ends of the rows. A row that changes during the copy is also written as a change. So
    /// the copy does not miss a row whose new end is before the cursor.
    pub(crate) fn copy(
        &self,
        from: CopyCursor,
        enough: usize,
        rows: &mut Rows,
    ) -> Option<CopyCursor> {
        let mut tombstones = Bound::Unbounded;
        match from {
            CopyCursor::Leases(from) => {
                for (&expiry, name) in self.expiries.range((from, Bound::Unbounded)) {
                    let lease = self.held[name].with_fence(expiry.1);
                    let lease = lease.expect("each expiry is that of a lease");
                    rows.lease(name, lease.row(), Some(lease));
                    if rows.as_bytes().len() >= enough {
                        return Some(CopyCursor::Leases(Bound::Excluded(expiry)));
                    }
                }
            }
            CopyCursor::Tombstones(from) => tombstones = from,
        }
        for end in self.tombstone_ends.range((tombstones, Bound::Unbounded)) {
            rows.tombstone(&end.1, self.tombstones.get(&end.1));
            if rows.as_bytes().len() >= enough {
                return Some(CopyCursor::Tombstones(Bound::Excluded(end.clone())));
            }
        }
        None
    }

    /// Marks all changes of the state as durable. Returns the news for the waiters.
    #[must_use = "somebody waits for the news"]
    pub(crate) fn commit(&mut self) -> Vec<Notice> {
        let undo = std::mem::take(&mut self.undo);
        self.forget_free_locks(undo.leases.into_keys());
        self.durable_leases = self.expiries.len();
        self.queues.commit();
        std::mem::take(&mut self.notices)
    }

    /// Undoes all changes of the state that are not durable.
    pub(crate) fn rollback(&mut self) {
        let undo = std::mem::take(&mut self.undo);
        // New leases are removed first, so that no new lease stands beside a restored lease of another mode.
        for (name, shared) in undo.leases.keys() {
            let new = self.held.get(name).and_then(|held| held.at(*shared));
            if let Some(fence) = new.map(|lease| lease.fence) {
                self.remove(name, fence);
            }
        }
        for ((name, _), before) in &undo.leases {
            if let Some(lease) = before {
                self.put(name, lease.clone());
            }
        }
        for (tombstone, before) in undo.tombstones {
            self.put_tombstone(tombstone, before);
        }
        // Waiters that were held back for lack of room may be in these queues again. Without this line, they would not
        // be granted the lock when there is room.
        self.held_back.extend(self.queues.rollback());
        // The pending news tell waiters of changes that were undone.
        self.notices.clear();
        self.undo = Undo::default();
        self.forget_free_locks(undo.leases.into_keys());
    }

    fn forget_free_locks(&mut self, changed: impl Iterator<Item = LeaseRow>) {
        for (name, _) in changed {
            if !self.held.contains_key(&name) {
                self.catalog.remove(&name);
            }
        }
    }

    // --- the parts of the operations

    /// The most bytes that a request to release can add to the rows of this lock.
    pub(crate) fn longest_request(&self, name: &LockName) -> u64 {
        let leases = self
            .held
            .get(name)
            .map_or(0, |held| held.sharers().map_or(1, Sharers::len));
        LONGEST_REQUEST * leases as u64
    }

    /// On a full disk, refuses a command that adds more bytes to the rows than there is spare room. Half of the
    /// spare room is reserved for the records that follow.
    pub(crate) fn check_room(&self, more: u64) -> Result<(), StoreError> {
        let wanted = self.live_bytes.saturating_add(self.live_bytes / 2);
        match &self.shortage {
            Some(shortage) if more > 0 && wanted.saturating_add(more) >= shortage.room => {
                Err(shortage.error.clone())
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Whether no further lease may be granted, because the disk is full and no lease has ended.
    pub(crate) fn is_full(&self) -> bool {
        self.shortage.is_some() && self.expiries.len() >= self.durable_leases
    }

    /// Records that the next waiter of this lock must be granted the lock when the disk has room again.
    pub(crate) fn hold_back(&mut self, name: &LockName) {
        self.held_back.insert(name.clone());
    }

    /// Sets whether the disk is full. If the disk has room, grants locks to the waiters that were held back on the full
    /// disk.
    pub(crate) fn bound(&mut self, shortage: Option<Shortage>, now: Moment) {
        self.shortage = shortage;
        if self.shortage.is_none() && !self.held_back.is_empty() {
            for name in std::mem::take(&mut self.held_back) {
                self.hand_off(&name, now);
            }
        }
    }

    /// Queues news for an attempt, to be delivered when all changes are durable.
    pub(crate) fn announce(&mut self, name: &LockName, token: TokenHash, news: News) {
        self.notices.push(Notice {
            name: name.clone(),
            token,
            news,
        });
    }

    /// The living leases of a lock. Leases that have ended are cleared away first, and the lock is granted to
    /// its waiters.
    pub(crate) fn living(&mut self, name: &LockName, now: Moment) -> Option<&Held> {
        self.clear_what_is_over(name, now);
        self.held.get(name)
    }

    /// The living lease of this token; clears away ended leases as [`State::living`] does.
    pub(crate) fn living_of(
        &mut self,
        name: &LockName,
        token: &TokenHash,
        now: Moment,
    ) -> Option<&Lease> {
        self.living(name, now)?.of_token(token)
    }

    /// Takes the next fencing token.
    pub(crate) fn next_fence(&mut self) -> Result<FencingToken, StoreError> {
        let fence =
            FencingToken::new(self.fence + 1).map_err(|_beyond| StoreError::FenceExhausted)?;
        self.fence = fence.get();
        Ok(fence)
    }

    /// Ends a lease. Its idempotency key counts as used from now on; with `released`, its token may be released
    /// again.
    pub(crate) fn end(
        &mut self,
        name: &LockName,
        fence: FencingToken,
        released: bool,
        ended_at: Moment,
    ) {
        if let Some(lease) = self.remove(name, fence) {
            self.remember_ended(name, &lease, released, ended_at);
        }
    }

    /// Refuses the attempt with this token from now on.
    pub(crate) fn withdraw(&mut self, name: &LockName, token: &TokenHash, now: Moment) {
        self.add_tombstone(&RowKey::given_back(name, token), now);
    }

    /// Whether the state has the tombstone with this key, and the tombstone has not ended.
    pub(crate) fn remembers(&self, key: &RowKey, now: Moment) -> bool {
        self.tombstones
            .get(key.as_bytes())
            .is_some_and(|memory| memory.until > now)
    }

    /// Clears away leases of the lock that have ended, and grants the lock to its waiters.
    pub(crate) fn clear_what_is_over(&mut self, name: &LockName, now: Moment) {
        let mut passes_on = false;
        while let Some(fence) = self.held.get(name).and_then(|held| held.over(now)) {
            if let Some(lease) = self.remove(name, fence) {
                self.remember_ended(name, &lease, false, lease.expires_at);
            }
            passes_on = true;
        }
        if passes_on {
            self.hand_off(name, now);
        }
    }

    /// Adds the tombstones of a lease that has ended. If no caller knew of the lease, its idempotency key stays
    /// usable: its caller may come late, and join the queue again.
    fn remember_ended(&mut self, name: &LockName, lease: &Lease, released: bool, ended_at: Moment) {
        let is_over = |request: &LeaseRequest| request.until <= ended_at;
        if !released && lease.request.as_deref().is_some_and(is_over) {
            // The time of the release request was over, so the token is told that its lease was broken.
            self.add_tombstone(&RowKey::broken(name, &lease.token), ended_at);
        }
        if let Some(key) = &lease.key
            && (released || !lease.is_undelivered())
        {
            self.add_tombstone(&RowKey::used_key(&key.idempotency.hash), ended_at);
            if released {
                self.add_tombstone(&RowKey::released(name, &lease.token), ended_at);
            }
        }
    }

    pub(crate) fn add_tombstone(&mut self, key: &RowKey, ended_at: Moment) {
        self.put_tombstone(key.into(), Some(ended_at.after(TOMBSTONE).into()));
    }

    /// What the tombstone with this key remembers durably.
    pub(super) fn durable_memory(&self, key: &RowKey) -> Option<&Memory> {
        match self.undo.tombstones.get(key.as_bytes()) {
            Some(before) => before.as_ref(),
            None => self.tombstones.get(key.as_bytes()),
        }
    }

    /// Adds a lease to the lock, or replaces the lease with its fencing token or the exclusive lease.
    pub(crate) fn put(&mut self, name: &LockName, lease: Lease) {
        let (row, expiry) = ((name.clone(), lease.row()), lease.expiry());
        if lease.reservation().is_some() {
            self.reserved.insert(name.clone());
        } else if !self.reserved.is_empty() {
            self.reserved.remove(name);
        }
        self.live_bytes += records::len_of_lease(name, &lease);
        let before = match self.held.entry(name.clone()) {
            Entry::Occupied(held) => held.into_mut().put(lease),
            Entry::Vacant(free) => {
                self.catalog.add(name);
                free.insert(Held::by(lease));
                None
            }
        };
        self.note_before(row, before);
        self.expiries.insert(expiry, name.clone());
    }

    /// Removes a lease from the lock.
    pub(crate) fn remove(&mut self, name: &LockName, fence: FencingToken) -> Option<Lease> {
        let Entry::Occupied(mut held) = self.held.entry(name.clone()) else {
            return None;
        };
        let lease = match held.get_mut() {
            Held::Shared(sharers) => {
                let lease = sharers.remove(fence)?;
                if sharers.is_empty() {
                    held.remove();
                }
                lease
            }
            Held::Exclusive(lease) if lease.fence != fence => return None,
            Held::Exclusive(_) => match held.remove() {
                Held::Exclusive(lease) => lease,
                Held::Shared(_) => return None,
            },
        };
        self.note_before((name.clone(), lease.row()), Some(lease.clone()));
        if !self.reserved.is_empty() {
            self.reserved.remove(name);
        }
        Some(lease)
    }

    /// Keeps the value of a lease's row before its first change, and removes the old lease from the expiries and the
    /// byte count.
    fn note_before(&mut self, row: LeaseRow, before: Option<Lease>) {
        if let Some(before) = &before {
            self.expiries.remove(&before.expiry());
            self.live_bytes -= records::len_of_lease(&row.0, before);
        }
        self.undo.leases.entry(row).or_insert(before);
    }

    pub(super) fn put_tombstone(&mut self, tombstone: Tombstone, memory: Option<Memory>) {
        let before = self.tombstones.remove(&tombstone);
        let orders = u64::from(tombstone.is_of_order());
        if let Some(before) = &before {
            self.tombstone_ends
                .remove(&(before.until, tombstone.clone()));
            self.live_bytes -= records::len_of_tombstone(&tombstone, before);
            self.remembered_orders -= orders;
        }
        if let Some(memory) = memory {
            self.live_bytes += records::len_of_tombstone(&tombstone, &memory);
            self.remembered_orders += orders;
            self.tombstone_ends
                .insert((memory.until, tombstone.clone()));
            self.tombstones.insert(tombstone.clone(), memory);
        }
        self.undo.tombstones.entry(tombstone).or_insert(before);
    }

    /// Sends these attempts their positions in the queue of a lock. One walk through the queue serves all of the
    /// attempts.
    pub(crate) fn publish_positions(&self, name: &LockName, watched: Vec<TokenHash>) {
        let Some(queue) = self.queues.get(name) else {
            return;
        };
        let watched: HashSet<_> = watched.into_iter().collect();
        let waiters = self.queues.len(name);
        for (ahead, (_, queued)) in (0..).zip(queue.iter()) {
            let token = &queued.attempt.token;
            if watched.contains(token) {
                let position = Position { ahead, waiters };
                self.parking.publish_position(token, position);
            }
        }
    }
}

// === impl Undo ===

impl Undo {
    /// The values of the changed leases of a lock, before their first change.
    fn leases_before(&self, name: &LockName) -> impl Iterator<Item = &Lease> {
        self.rows(name).filter_map(|(_, before)| before.as_ref())
    }

    /// Whether this lease of a lock has changes that are not durable, or is new.
    fn has_changed(&self, name: &LockName, lease: &Lease) -> bool {
        !self.leases.is_empty() && self.leases.contains_key(&(name.clone(), lease.row()))
    }

    fn rows(&self, name: &LockName) -> btree_map::Range<'_, LeaseRow, Option<Lease>> {
        let last = (name.clone(), Some(FencingToken::MAX));
        self.leases.range((name.clone(), None)..=last)
    }
}
