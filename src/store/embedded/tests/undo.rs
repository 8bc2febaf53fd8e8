//! What is not durable can be undone, queue included, and is not shown: random batches of commands.

use std::{sync::OnceLock, time::Duration};

use tokio::time::Instant;

use crate::{
    lock::{BreakTarget, HeldLease, IdempotencyHash, KeeperId, LockName, Mode},
    store::{
        contract::{Acquisition, Attempt, Holder, Inspection, RenewalTtl, Renewer},
        embedded::{
            records::Fields,
            state::{Moment, State, UndeliveredGrant},
        },
        parking::{Parked, Parking},
    },
};

use super::{
    line::{waiting, waiting_under},
    rig::{all_rows, attempt, key, keyed, name, share},
};

const NAMES: [&str; 3] = ["a", "b", "c"];

/// Everything that can be seen of a state.
#[derive(Debug, PartialEq)]
struct Seen {
    shown: Vec<Inspection>,
    rows: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    next_hand_off: Option<Moment>,
    live_bytes: u64,
}

struct Random(u64);

#[test]
fn a_batch_that_is_undone_was_never_there() {
    for seed in 1..=30 {
        let mut random = Random(seed * 0x9e37_79b9);
        let parking = Parking::default();
        let mut state = State::new(vec![], vec![], 0, parking.clone());
        let mut now = Moment::from_micros(1_000_000);
        let keys: Vec<_> = (0..3).map(|_| key()).collect();
        let mut attempts = vec![attempt("a", 100)];
        let mut places = Vec::new();
        for batch in 0..120 {
            let before = seen(&state, now);
            for _ in 0..=random.below(12) {
                one_command(
                    &mut random,
                    &mut state,
                    &parking,
                    &keys,
                    &mut attempts,
                    &mut places,
                    now,
                );
                assert_eq!(
                    seen(&state, now).shown,
                    before.shown,
                    "seed {seed}, batch {batch}: shown before it was durable"
                );
            }
            if random.below(3) == 0 {
                state.rollback();
                let after = seen(&state, now);
                assert_eq!(after, before, "seed {seed}, batch {batch}");
            } else {
                drop(state.commit());
            }
            holds_together(&state, now);
            now = now.after(Duration::from_millis(random.below(60)));
            state.sweep(now, usize::MAX);
            drop(state.commit());
            holds_together(&state, now);
        }
    }
}

fn one_command(
    random: &mut Random,
    state: &mut State,
    parking: &Parking,
    keys: &[IdempotencyHash],
    attempts: &mut Vec<Attempt>,
    places: &mut Vec<Parked>,
    now: Moment,
) {
    let recent = attempts.len().min(10) as u64;
    let index = attempts.len() - 1 - usize::try_from(random.below(recent)).unwrap();
    let Attempt { name, token, .. } = attempts[index].clone();
    match random.below(16) {
        0..5 => {
            let attempt = new_attempt(random, keys);
            places.push(parking.park(attempt.name.clone(), attempt.token));
            state.acquire(&attempt, now).ok();
            attempts.push(attempt);
        }
        5 => drop(state.acquire(&attempts[index].clone(), now)),
        6..8 => drop(state.release(None, &name, &token, now)),
        8 => {
            let keep = (random.below(2) == 0).then_some(Duration::from_millis(80));
            drop(state.leave(&name, &token, keep, now));
        }
        9 => {
            let ttl = super::rig::ttl(100 + random.below(100));
            drop(state.renew(Renewer::Bearer, &name, &token, Some(ttl).into(), now));
        }
        10 => {
            state.give_back(&name, &token, None, now);
        }
        11 => {
            let adopter = Renewer::Adopter(KeeperId::random());
            drop(state.renew(adopter, &name, &token, RenewalTtl::default(), now));
        }
        12 => {
            let held = state.durable_lease(&name, &token, now);
            let one = held.map(|lease| BreakTarget::Lease(lease.fence));
            let target = one.filter(|_| random.below(3) > 0);
            let broken = state.break_lock(&name, target.or(Some(BreakTarget::All)), now);
            drop(broken);
        }
        13 => state.take_back(&[UndeliveredGrant { name, token }], now),
        _ => {
            let gone = usize::try_from(random.below(places.len() as u64 + 1)).unwrap();
            if gone < places.len() {
                places.swap_remove(gone);
            }
        }
    }
}

fn new_attempt(random: &mut Random, keys: &[IdempotencyHash]) -> Attempt {
    let lock = random.below(NAMES.len() as u64);
    let text = NAMES[usize::try_from(lock).unwrap()];
    let mut hash = *keys[usize::try_from(random.below(3)).unwrap()].as_bytes();
    // The hash of a key covers the name.
    hash[0] = text.as_bytes()[0];
    let hash = IdempotencyHash::from_bytes(hash);
    let attempt = match random.below(6) {
        0 => attempt(text, 100),
        1 => keyed(text, 100, hash),
        2..4 => waiting_under(text, hash),
        _ => waiting(text),
    };
    let sharing = match random.below(5) {
        0 | 1 => None,
        2 => Some(share(None)),
        _ => Some(share(Some(1 + random.below(4)))),
    };
    Attempt {
        sharing,
        ttl: super::rig::ttl(100 + random.below(100)),
        ..attempt
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

/// No waiter is queued who might be granted the lock, the next end that matters is known if anybody waits, and an exclusive
/// lease is alone.
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
        have_slots_of_their_own(leases);
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

fn have_slots_of_their_own(leases: &[HeldLease]) {
    if leases.iter().any(|lease| lease.mode == Mode::Exclusive) {
        assert_eq!(leases.len(), 1, "{leases:?}");
    }
    let mut slots: Vec<_> = leases.iter().filter_map(|it| it.mode.slot()).collect();
    slots.sort_unstable();
    assert!(
        slots.is_sorted_by(|before, after| before < after),
        "{slots:?}"
    );
}

fn seen(state: &State, now: Moment) -> Seen {
    let all = all_rows(state);
    let mut fields = Fields::of(all.as_bytes());
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

/// A lock as it is shown, but for the instant of the look.
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

// === impl Random ===

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}
