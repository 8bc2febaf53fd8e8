//! Undo of changes that are not durable, including those of the queue: random batches of commands.

use std::{sync::OnceLock, time::Duration};

use tokio::time::Instant;

use crate::{
    lock::{
        BreakTarget, FencingToken, IdempotencyHash, LockName, MinHold, OrderNumber, RecipientId,
        Ttl,
    },
    store::{
        Unavailability,
        contract::{
            Acquisition, Attempt, Confirmation, Holder, Inspection, OrderChange, Release, Releaser,
            RenewalTtl, Renewer, SHOWN_HOLDERS,
        },
        embedded::{
            records::{Fields, Rows},
            state::{CopyCursor, Moment, Shortage, State, UndeliveredGrant},
        },
        parking::{Parked, Parking},
    },
};

use super::rig::{
    LONG, Random, assert_distinct_slots, attempt, cooling, key, keyed, name, one_of, order,
    patient, reader, share, ttl, waiting, waiting_under, with,
};

const NAMES: [&str; 3] = ["a", "b", "c"];

/// Everything about a state that a caller or the log can see.
#[derive(Debug, PartialEq)]
struct Seen {
    shown: Vec<Inspection>,
    rows: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    next_hand_off: Option<Moment>,
    live_bytes: u64,
}

/// The simulated callers that send commands.
struct Callers {
    random: Random,
    parking: Parking,
    keys: [IdempotencyHash; 3],
    attempts: Vec<Attempt>,
    places: Vec<Parked>,
}

#[test]
fn a_batch_that_is_undone_was_never_there() {
    for seed in 1..=30 {
        let parking = Parking::default();
        let mut state = State::new(vec![], vec![], 0, parking.clone());
        let mut callers = Callers {
            random: Random(seed * 0x9e37_79b9),
            parking,
            keys: [(); 3].map(|()| key()),
            attempts: vec![attempt("a", 100)],
            places: Vec::new(),
        };
        let mut now = Moment::from_micros(1_000_000);
        for batch in 0..120 {
            let context = format!("seed {seed}, batch {batch}");
            let before = seen(&state, now);
            let recent = callers.attempts.iter().rev().take(10).cloned();
            let recent: Vec<_> = recent.collect();
            let holders = confirmed(&state, &recent, now);
            for _ in 0..=callers.random.below(12) {
                callers.one_command(&mut state, now);
                let shown = seen(&state, now).shown;
                assert_eq!(shown, before.shown, "{context}: before it was durable");
                assert_eq!(confirmed(&state, &recent, now), holders, "{context}");
            }
            if callers.random.below(3) == 0 {
                state.rollback();
                assert_eq!(seen(&state, now), before, "{context}");
            } else {
                drop(state.commit());
            }
            holds_together(&state, now);
            now = now.after(Duration::from_millis(callers.random.below(60) as u64));
            state.sweep(now, usize::MAX);
            drop(state.commit());
            holds_together(&state, now);
        }
    }
}

// === impl Callers ===

impl Callers {
    fn one_command(&mut self, state: &mut State, now: Moment) {
        let index = self.attempts.len() - 1 - self.random.below(self.attempts.len().min(10));
        let Attempt { name, token, .. } = self.attempts[index].clone();
        match self.random.below(18) {
            0..5 => {
                let attempt = self.new_attempt();
                self.places
                    .push(self.parking.park(attempt.name.clone(), attempt.token));
                state.acquire(&attempt, now).ok();
                self.attempts.push(attempt);
            }
            5 => drop(state.acquire(&self.attempts[index], now)),
            6..8 => drop(state.release(Releaser::Bearer, &name, &token, now)),
            8 => {
                let keep = (self.random.below(2) == 0).then_some(Duration::from_millis(80));
                drop(state.leave(&name, &token, keep, now));
            }
            9 => {
                let ttl = ttl(100 + self.random.below(100) as u64);
                drop(state.renew(Renewer::Bearer, &name, &token, Some(ttl).into(), now));
            }
            10 => {
                state.give_back(&name, &token, None, now);
            }
            11 => {
                let adopter = Renewer::Adopter(RecipientId::random());
                drop(state.renew(adopter, &name, &token, RenewalTtl::default(), now));
            }
            12 => {
                let held = state.durable_lease(&name, &token, now);
                let one = held.map(|lease| BreakTarget::Lease(lease.fence));
                let target = one.filter(|_| self.random.below(3) > 0);
                let broken = state.break_lock(&name, target.or(Some(BreakTarget::All)), now);
                drop(broken);
            }
            13 => state.take_back(&[UndeliveredGrant { name, token }], now),
            14 => drop(state.release(Releaser::Unused, &name, &token, now)),
            15 => {
                let seen = state.inspect(&name, now).granted_order.map(|it| it.number);
                let new = [None, Some(OrderNumber::new(5).unwrap())][self.random.below(2)];
                drop(state.set_order(&name, OrderChange { seen, new }, now));
            }
            _ => {
                let gone = self.random.below(self.places.len() + 1);
                if gone < self.places.len() {
                    self.places.swap_remove(gone);
                }
            }
        }
    }

    fn new_attempt(&mut self) -> Attempt {
        let text = NAMES[self.random.below(NAMES.len())];
        let sharing = match self.random.below(5) {
            0 | 1 => None,
            2 => Some(share(None)),
            _ => Some(share(Some(1 + self.random.below(4) as u64))),
        };
        let mut hash = *self.keys[self.random.below(3)].as_bytes();
        // In the program, the hash of a key covers the name of the lock, and a key is used for one mode.
        hash[0] = text.as_bytes()[0];
        hash[1..3].copy_from_slice(&sharing.map_or(0, |it| it.limit.get()).to_le_bytes());
        let hash = IdempotencyHash::from_bytes(hash);
        let attempt = match self.random.below(6) {
            0 => attempt(text, 100),
            1 => keyed(text, 100, hash),
            2..4 => waiting_under(text, hash),
            _ => waiting(text),
        };
        with(attempt, |it| {
            it.sharing = sharing;
            it.said.order = match self.random.below(3) {
                0 => order(self.random.below(9) as u64, None, None),
                _ => None,
            };
            it.set_ttl(ttl(100 + self.random.below(100) as u64));
            it.min_hold = match self.random.below(3) {
                0 => MinHold::from_millis(1 + self.random.below(100) as u64, Ttl::MIN).ok(),
                _ => None,
            };
        })
    }
}

#[test]
fn a_position_that_comes_back_is_found_under_its_key_although_another_had_the_key_meanwhile() {
    let now = Moment::from_micros(1_000_000);
    let parking = Parking::default();
    let mut state = State::new(vec![], vec![], 0, parking.clone());
    state.acquire(&attempt("a", 60_000), now).unwrap();
    let hash = key();
    let (first, other, again) = (
        waiting_under("a", hash),
        waiting_under("a", hash),
        waiting_under("a", hash),
    );
    let _parked = [&first, &other, &again].map(|it| parking.park(it.name.clone(), it.token));
    state.acquire(&first, now).unwrap();
    drop(state.commit());

    drop(state.leave(&first.name, &first.token, None, now));
    state.acquire(&other, now).unwrap();
    state.rollback();
    let repeated = state.acquire(&again, now).unwrap();
    assert!(matches!(repeated, Acquisition::Queued(_)), "{repeated:?}");
    drop(state.commit());
    assert_eq!(state.inspect(&again.name, now).waiters, 1);
}

#[test]
fn who_was_held_back_is_granted_although_what_was_done_meanwhile_is_undone() {
    let parking = Parking::default();
    let mut state = State::new(vec![], vec![], 0, parking.clone());
    let now = Moment::from_micros(1);
    let writer = attempt("lock", LONG);
    state.acquire(&writer, now).unwrap();
    let readers = [(); 2].map(|()| patient(reader("lock", LONG)));
    let _places = readers
        .each_ref()
        .map(|it| parking.park(it.name.clone(), it.token));
    for reader in &readers {
        state.acquire(reader, now).unwrap();
    }
    assert!(state.commit().is_empty());
    // The disk is full: the release of the writer makes room for one lease only, so only one reader is granted the
    // lock.
    let shortage = Shortage {
        error: Unavailability::Overloaded.into(),
        room: 0,
    };
    state.bound(Some(shortage), now);
    let released = state.release(Releaser::Bearer, &writer.name, &writer.token, now);
    assert!(matches!(released, Release::Released(_)), "{released:?}");
    assert_eq!(state.commit().len(), 1);
    // The other reader is granted the lock, and the write of this grant fails.
    state.bound(None, now);
    state.rollback();
    state.bound(None, now);
    let told = state.commit();
    assert_eq!(told.len(), 1, "nobody else would grant it");
    assert_eq!(told[0].token, readers[1].token);
}

#[test]
fn who_has_an_order_is_held_back_while_there_is_no_room_for_it() {
    let parking = Parking::default();
    let mut state = State::new(vec![], vec![], 0, parking.clone());
    let now = Moment::from_micros(1);
    let room = |state: &State, spare: u64| Shortage {
        error: Unavailability::Overloaded.into(),
        room: state.live_bytes() * 3 / 2 + spare,
    };
    for (has_order, spare, is_granted) in [
        (false, 1_000, true),
        (true, 1_000, false),
        (true, 10_000, true),
    ] {
        let [holder, waiter] = [attempt("lock", LONG), waiting("lock")];
        let waiter = with(waiter, |it| {
            it.said.order = has_order.then(|| order(7, None, None)).flatten();
        });
        let _place = parking.park(waiter.name.clone(), waiter.token);
        for asked in [&holder, &waiter] {
            state.acquire(asked, now).unwrap();
        }
        drop(state.commit());
        let shortage = room(&state, spare);
        state.bound(Some(shortage), now);
        state.release(Releaser::Bearer, &holder.name, &holder.token, now);
        assert_eq!(state.commit().len(), usize::from(is_granted), "{spare}");
        state.bound(None, now);
        assert_eq!(state.commit().len(), usize::from(!is_granted), "{spare}");
        state.release(Releaser::Bearer, &waiter.name, &waiter.token, now);
        drop(state.commit());
    }
    // Nor is an order set that does not fit.
    let lock = name("lock");
    let shortage = room(&state, 1_000);
    state.bound(Some(shortage), now);
    let seen = OrderNumber::new(7).ok();
    for (new, fits) in [(OrderNumber::new(8).ok(), false), (None, true)] {
        let set = state.set_order(&lock, OrderChange { seen, new }, now);
        assert_eq!(set.is_ok(), fits, "{set:?}");
    }
}

#[test]
fn rests_are_not_counted_as_holders_during_a_batch_either() {
    let now = Moment::from_micros(1_000_000);
    let mut state = State::new(vec![], vec![], 0, Parking::default());
    let rests = [(); 4].map(|()| cooling(LONG / 2, one_of(200, "lock", LONG)));
    let holders = [(); SHOWN_HOLDERS + 3].map(|()| one_of(200, "lock", LONG));
    for attempt in rests.iter().chain(&holders) {
        state.acquire(attempt, now).unwrap();
    }
    for lease in &rests {
        let released = state.release(Releaser::Bearer, &lease.name, &lease.token, now);
        assert!(matches!(released, Release::Released(_)), "{released:?}");
    }
    drop(state.commit());
    let lock = name("lock");
    let before = state.inspect(&lock, now).holder.unwrap();
    drop(state.renew(
        Renewer::Bearer,
        &lock,
        &holders[0].token,
        RenewalTtl::default(),
        now,
    ));
    let during = state.inspect(&lock, now).holder.unwrap();
    for shown in [before, during] {
        assert_eq!((shown.count(), shown.holders()), (107, 103));
        assert_eq!(shown.leases().len(), SHOWN_HOLDERS);
        assert!(shown.leases().iter().all(|lease| !lease.is_resting));
    }
}

/// Asserts that no waiter is queued that might be granted the lock, that the next expiry is known if there are
/// waiters, and that an exclusive lease is the only one.
fn holds_together(state: &State, now: Moment) {
    let (mut count, mut awaited) = (0, None::<Duration>);
    let mut rows = 0;
    for lock in names() {
        let shown = state.inspect(&lock, now);
        assert_eq!(shown.queue.len() as u64, shown.waiters);
        let holder = shown.holder.as_ref();
        let leases = holder.map_or(&[][..], Holder::leases);
        assert_eq!(holder.map_or(0, Holder::count), leases.len() as u64);
        rows += leases.len();
        assert_eq!(state.durable_leases(&lock, now).count(), leases.len());
        assert!(leases.is_sorted_by_key(|lease| lease.expires_in));
        assert_distinct_slots(leases);
        let ends = leases.iter().map(|lease| lease.expires_in);
        count += leases.len();
        let Some(head) = shown.queue.first() else {
            continue;
        };
        awaited = ends.chain(awaited).min();
        assert!(!leases.is_empty(), "somebody waits, so it is held");
        let is_shared = leases.iter().all(|lease| lease.mode.is_shared());
        if let Some(sharing) = head.sharing.filter(|_| is_shared) {
            assert!(
                leases.len() >= sharing.limit.get().into(),
                "it might share the lock"
            );
        }
    }
    let known = state.next_hand_off().map(|moment| moment.since(now));
    assert_eq!(known.is_some(), awaited.is_some());
    assert!(known <= awaited, "{known:?} is later than {awaited:?}");
    if count <= 16 {
        assert_eq!(known, awaited, "no other end wakes the writer");
    }
    assert_eq!(all_rows(state).len(), state.len());
    assert!(state.len() >= rows as u64);
    assert_eq!(all_rows(state).as_bytes().len() as u64, state.live_bytes());
}

fn seen(state: &State, now: Moment) -> Seen {
    let all = all_rows(state);
    let mut fields = Fields::new(all.as_bytes());
    let mut rows: Vec<_> = (0..all.len())
        .map(|_| fields.row().unwrap())
        .map(|(key, value)| (key.to_vec(), value.map(<[u8]>::to_vec)))
        .collect();
    rows.sort();
    Seen {
        shown: names().map(|lock| inspected(state, &lock, now)).collect(),
        rows,
        next_hand_off: state.next_hand_off(),
        live_bytes: state.live_bytes(),
    }
}

/// The rows of all leases and tombstones.
fn all_rows(state: &State) -> Rows {
    let mut rows = Rows::default();
    let more = state.copy(CopyCursor::START, usize::MAX, &mut rows);
    assert!(more.is_none());
    rows
}

/// The fencing token of each attempt that a confirm would tell that it holds its lock.
fn confirmed(state: &State, attempts: &[Attempt], now: Moment) -> Vec<Option<FencingToken>> {
    let confirmed = attempts
        .iter()
        .map(|it| state.confirm(&it.name, &it.token, now));
    let fence = |confirmed| match confirmed {
        Confirmation::Confirmed(held) => Some(held.fence),
        Confirmation::Lost | Confirmation::Replaced => None,
    };
    confirmed.map(fence).collect()
}

/// The inspection of a lock with a fixed instant, so that two inspections can be compared.
fn inspected(state: &State, lock: &LockName, now: Moment) -> Inspection {
    static LOOK: OnceLock<Instant> = OnceLock::new();
    let mut shown = state.inspect(lock, now);
    let leases = shown.holder.as_mut().map(Holder::leases_mut);
    for lease in leases.unwrap_or_default() {
        lease.as_of = *LOOK.get_or_init(Instant::now);
    }
    shown
}

fn names() -> impl Iterator<Item = LockName> {
    NAMES.into_iter().map(name)
}
