//! Leases that share a lock on a disk and a clock in hand: whatever was answered is true after each fault, and
//! nobody is granted or told what is not durable.

use std::time::Duration;

use crate::{
    lock::{BreakTarget, HeldLease, Mode, Reason, ReleaseRequest},
    store::{
        Store, StoreError, Unavailability,
        contract::{
            Acquisition, Attempt, Breaking, Holder, Loss, Release, Renewal, RenewalTtl, Renewer,
            SharedHolders,
        },
        embedded::state::{Moment, Shortage, State},
        parking::{News, Parking},
    },
};

use super::{
    disk::Fault,
    line::{LONG, patient, queued, released, told_of_its_grant, waiting},
    rig::{Rig, attempt, key, keyed, name, one_of, reader, share},
    stall::Gate,
};

/// What callers were told of the leases that share `lock`.
#[derive(Default)]
struct Told {
    held: Vec<(Attempt, HeldLease)>,
    gone: Vec<Attempt>,
    /// An acquire or a release of these has an unknown outcome.
    unknown: Vec<Attempt>,
}

impl Told {
    async fn acquire(&mut self, rig: &Rig, wanted: Attempt) {
        match rig.store().acquire(&wanted).await {
            Ok(Acquisition::Granted(held)) => self.held.push((wanted, held)),
            Ok(Acquisition::Held(_)) => {}
            Ok(other) => panic!("neither granted nor held: {other:?}"),
            Err(StoreError::Indeterminate(_)) => self.unknown.push(wanted),
            Err(_nothing_happened) => {}
        }
    }

    async fn release_one(&mut self, rig: &Rig, at: usize) {
        let (holder, held) = self.held.remove(at);
        match rig.store().release(&holder.name, &holder.token).await {
            Ok(Release::Released) => self.gone.push(holder),
            Ok(lost @ (Release::Adopted | Release::Lost(_))) => panic!("was lost: {lost:?}"),
            Err(StoreError::Indeterminate(_)) => self.unknown.push(holder),
            Err(_nothing_happened) => self.held.push((holder, held)),
        }
    }

    async fn renew_one(&self, rig: &Rig, at: usize) {
        rig.clock.advance(Duration::from_millis(1));
        let (holder, _) = &self.held[at];
        let renewed = rig.store().renew(&holder.name, &holder.token, None).await;
        let lost = matches!(renewed, Ok(Renewal::Lost(_) | Renewal::Adopted));
        assert!(!lost, "{renewed:?}");
    }

    /// One of the commands, whichever has its turn.
    async fn one_command(&mut self, rig: &Rig, turn: usize) {
        let few = self.held.len() < 2;
        match turn % 5 {
            0 if !few => self.release_one(rig, turn % 2).await,
            1 | 2 => self.acquire(rig, one_of(5, "lock", LONG)).await,
            3 if !few => self.renew_one(rig, turn % 2).await,
            4 if !few => self.release_one(rig, 0).await,
            _ => self.acquire(rig, keyed_reader()).await,
        }
    }

    /// Whatever was answered is so.
    async fn is_true(&self, rig: &Rig, context: &str) {
        let (shown, count) = match rig.shown("lock").await.holder {
            Some(Holder::Shared(SharedHolders { leases, count })) => (leases, count),
            None => (Vec::new(), 0),
            Some(other) => panic!("{context}: not shared: {other:?}"),
        };
        let (least, most) = (self.held.len(), self.held.len() + self.unknown.len());
        let possible = least as u64..=most as u64;
        assert!(
            possible.contains(&count),
            "{context}: {count} of {possible:?}"
        );
        let mut slots: Vec<_> = shown.iter().filter_map(|it| it.mode.slot()).collect();
        slots.sort_unstable();
        assert!(
            slots.is_sorted_by(|one, next| one < next),
            "{context}: {slots:?}"
        );
        for (holder, told) in &self.held {
            let renewed = rig.store().renew(&holder.name, &holder.token, None).await;
            let Ok(Renewal::Renewed(kept, _)) = renewed else {
                panic!("{context}: was lost: {renewed:?}");
            };
            assert_eq!(
                (kept.fence, kept.mode),
                (told.fence, told.mode),
                "{context}"
            );
        }
        for gone in &self.gone {
            let renewed = rig.store().renew(&gone.name, &gone.token, None).await;
            let is_lost = matches!(renewed, Ok(Renewal::Lost(_)));
            assert!(is_lost, "{context}: came back: {renewed:?}");
        }
    }
}

fn keyed_reader() -> Attempt {
    Attempt {
        sharing: Some(share(None)),
        ..keyed("lock", LONG, key())
    }
}

async fn sharers(rig: &Rig) -> SharedHolders {
    match rig.shown("lock").await.holder {
        Some(Holder::Shared(holders)) => holders,
        other => panic!("not shared: {other:?}"),
    }
}

#[tokio::test]
async fn a_process_that_dies_at_any_step_of_the_disk_has_answered_what_is_true() {
    // A step is a write, a sync or a change of the directory.
    for steps in 1..160 {
        let (mut rig, mut told) = (Rig::start(), Told::default());
        for _ in 0..3 {
            told.acquire(&rig, one_of(5, "lock", LONG)).await;
        }
        rig.disk.fail(Fault::DiesAfter(steps));
        let mut turn = 0;
        while rig.disk.fault() != Fault::Dead {
            told.one_command(&rig, turn).await;
            turn += 1;
            assert!(turn < 10_000, "{steps}: it never dies");
        }
        if steps % 2 == 0 {
            rig.lose_power().await;
        } else {
            rig.kill().await;
        }
        told.is_true(&rig, &format!("{steps} steps")).await;
    }
}

#[tokio::test]
async fn a_sync_that_fails_at_any_time_leaves_what_was_answered() {
    for syncs in (0..40).step_by(4) {
        for fault in [Fault::SyncLosesAfter(syncs), Fault::Full(syncs)] {
            let (mut rig, mut told) = (Rig::start(), Told::default());
            rig.disk.fail(fault);
            for turn in 0..50 {
                told.one_command(&rig, turn).await;
            }
            rig.disk.fail(Fault::None);
            rig.writes_again().await;
            told.is_true(&rig, &format!("{fault:?}, at once")).await;
            rig.lose_power().await;
            told.is_true(&rig, &format!("{fault:?}, later")).await;
        }
    }
}

#[tokio::test]
async fn they_live_with_what_is_left_of_them_after_a_restart_and_in_full_after_a_reboot() {
    let mut rig = Rig::start();
    let sharing = [
        one_of(3, "lock", 10_000),
        reader("lock", 30_000),
        one_of(3, "lock", 20_000),
    ];
    let mut told = Vec::new();
    for one in &sharing {
        told.push(rig.granted(one).await);
    }
    let seconds = Duration::from_secs;
    let shown = async |rig: &Rig| {
        let mut leases = sharers(rig).await.leases;
        leases.sort_by_key(|lease| lease.fence);
        let shown: Vec<_> = leases.iter().map(|it| (it.fence, it.mode)).collect();
        let expected: Vec<_> = told.iter().map(|it| (it.fence, it.mode)).collect();
        assert_eq!(shown, expected);
        leases
            .into_iter()
            .map(|it| it.expires_in)
            .collect::<Vec<_>>()
    };
    rig.clock.advance(seconds(9));
    rig.restart().await;
    assert_eq!(shown(&rig).await, [1, 21, 11].map(seconds));
    rig.kill().await;
    assert_eq!(shown(&rig).await, [1, 21, 11].map(seconds));
    rig.lose_power().await;
    assert_eq!(shown(&rig).await, [10, 30, 20].map(seconds));
    // Each ends by itself, and its slot is free then.
    rig.clock.advance(seconds(10));
    assert_eq!(sharers(&rig).await.count, 2);
    let next = rig.granted(&one_of(3, "lock", LONG)).await;
    assert_eq!(next.mode, Mode::Shared { slot: Some(0) });
    rig.restart().await;
    assert_eq!(sharers(&rig).await.count, 3);
}

#[tokio::test]
async fn a_release_that_cannot_be_written_lets_nobody_share_the_lock() {
    for fault in [Fault::ReadOnly, Fault::SyncLands(1), Fault::SyncLoses(1)] {
        let rig = Rig::start();
        let alone = attempt("lock", LONG);
        let before = rig.granted(&alone).await;
        let readers = [reader("lock", LONG), one_of(2, "lock", LONG)].map(patient);
        let mut places = Vec::new();
        for reader in &readers {
            places.push(queued(&rig, reader).await);
        }
        rig.disk.fail(fault);
        let release = rig.store().release(&alone.name, &alone.token).await;
        assert!(release.is_err(), "{fault:?}: {release:?}");
        let shown = rig.shown("lock").await;
        assert!(
            matches!(&shown.holder, Some(Holder::Lease(held)) if held.fence == before.fence),
            "{fault:?}: {shown:?}"
        );
        assert_eq!(shown.waiters, 2);
        rig.disk.fail(Fault::None);
        rig.writes_again().await;
        for place in &mut places {
            assert_eq!(place.try_news(), None, "{fault:?}");
        }
        released(&rig, &alone).await;
        for place in &mut places {
            told_of_its_grant(place).await;
        }
        assert_eq!(sharers(&rig).await.count, 2);
        // And back: one who is alone after those who share it.
        let next = waiting("lock");
        let mut place = queued(&rig, &next).await;
        released(&rig, &readers[0]).await;
        rig.disk.fail(fault);
        let release = rig.store().release(&name("lock"), &readers[1].token).await;
        assert!(release.is_err(), "{fault:?}: {release:?}");
        assert_eq!(sharers(&rig).await.count, 1, "{fault:?}");
        rig.disk.fail(Fault::None);
        rig.writes_again().await;
        assert_eq!(place.try_news(), None, "{fault:?}");
        released(&rig, &readers[1]).await;
        told_of_its_grant(&mut place).await;
    }
}

#[tokio::test]
async fn a_release_and_the_grants_to_all_who_stand_together_are_one_transaction() {
    let mut rig = Rig::start();
    let alone = attempt("lock", LONG);
    let before = rig.granted(&alone).await;
    let mut places = Vec::new();
    for _ in 0..20 {
        places.push(queued(&rig, &patient(one_of(20, "lock", LONG))).await);
    }
    // Everything reaches the disk, and the process dies before it can say so.
    rig.disk.fail(Fault::SyncLands(usize::MAX));
    let release = rig.store().release(&alone.name, &alone.token).await;
    assert!(
        matches!(release, Err(StoreError::Indeterminate(_))),
        "{release:?}"
    );
    rig.lose_power().await;
    let sharers = sharers(&rig).await;
    assert_eq!(sharers.count, 20);
    assert!(sharers.leases.iter().all(|it| it.fence > before.fence));
    let mut slots: Vec<_> = sharers.leases.iter().map(|it| it.mode.slot()).collect();
    slots.sort_unstable();
    assert!(slots.into_iter().eq((0..20).map(Some)));
}

#[tokio::test]
async fn breaking_all_is_one_transaction_or_nothing() {
    for (fault, gone) in [
        (Fault::ReadOnly, false),
        (Fault::SyncLands(usize::MAX), true),
    ] {
        let mut rig = Rig::start();
        let sharing: Vec<_> = (0..10).map(|_| reader("lock", LONG)).collect();
        for one in &sharing {
            rig.granted(one).await;
        }
        rig.disk.fail(fault);
        let store = rig.store();
        let broken = store
            .break_lock(&name("lock"), Some(BreakTarget::All))
            .await;
        assert!(broken.is_err(), "{broken:?}");
        rig.lose_power().await;
        assert_eq!(rig.is_free("lock").await, gone, "{fault:?}");
        let (store, lock) = (rig.store(), name("lock"));
        let broken = store.break_lock(&lock, Some(BreakTarget::All)).await;
        match (gone, broken.unwrap()) {
            (true, broken) => assert_eq!(broken, Breaking::NotHeld),
            (false, Breaking::Broken(holder)) => assert_eq!(holder.count(), 10),
            (false, other) => panic!("not broken: {other:?}"),
        }
        for one in &sharing {
            let late = rig.store().acquire(one).await;
            assert_eq!(late, Err(Unavailability::Withdrawn.into()));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_hears_of_a_place_before_it_is_durable() {
    let rig = Rig::start();
    let [first, second] = ["lock"; 2].map(|lock| one_of(2, lock, LONG));
    for one in [&first, &second] {
        rig.granted(one).await;
    }
    let next = patient(one_of(2, "lock", LONG));
    let mut place = queued(&rig, &next).await;
    let before: Vec<_> = fences(&sharers(&rig).await);
    let gate = Gate::close(&rig);
    let watch = async {
        gate.wait().await;
        assert_eq!(place.try_news(), None);
        let shown = rig.shown("lock").await;
        assert_eq!(shown.waiters, 1);
        let Some(Holder::Shared(shown)) = shown.holder else {
            panic!("it is shared");
        };
        assert_eq!((fences(&shown), shown.count), (before.clone(), 2));
        // Who has released it holds it until that is durable, and who is next does not.
        let confirmed = rig.store().confirm(&first.name, &first.token).await;
        assert!(is_confirmed(&confirmed), "{confirmed:?}");
        let confirmed = rig.store().confirm(&next.name, &next.token).await;
        assert!(!is_confirmed(&confirmed), "{confirmed:?}");
        let confirmed = rig.store().confirm(&second.name, &second.token).await;
        assert!(is_confirmed(&confirmed), "{confirmed:?}");
        gate.open();
    };
    tokio::join!(released(&rig, &first), watch);
    let held = told_of_its_grant(&mut place).await;
    assert_eq!(held.mode, Mode::Shared { slot: Some(0) });
    assert!(fences(&sharers(&rig).await).contains(&held.fence));
    let confirmed = rig.store().confirm(&next.name, &next.token).await;
    assert!(is_confirmed(&confirmed), "{confirmed:?}");
}

fn fences(sharers: &SharedHolders) -> Vec<crate::lock::FencingToken> {
    let mut fences: Vec<_> = sharers.leases.iter().map(|it| it.fence).collect();
    fences.sort_unstable();
    fences
}

fn is_confirmed(confirmation: &Result<crate::store::contract::Confirmation, StoreError>) -> bool {
    use crate::store::contract::Confirmation;
    matches!(confirmation, Ok(Confirmation::Confirmed(_)))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_place_of_whose_grant_nobody_hears_passes_on_at_once() {
    let rig = Rig::start();
    let [first, second] = ["lock"; 2].map(|lock| one_of(2, lock, LONG));
    for one in [&first, &second] {
        rig.granted(one).await;
    }
    let gone = queued(&rig, &patient(one_of(2, "lock", LONG))).await;
    let mut next = queued(&rig, &patient(one_of(2, "lock", LONG))).await;
    let gate = Gate::close(&rig);
    let hang_up = async {
        gate.wait().await;
        drop(gone);
        gate.open();
    };
    tokio::join!(released(&rig, &second), hang_up);
    let held = told_of_its_grant(&mut next).await;
    assert_eq!(held.mode, Mode::Shared { slot: Some(1) });
    assert_eq!(sharers(&rig).await.count, 2);
}

#[test]
fn whatever_removes_the_head_grants_the_next_in_the_same_transaction() {
    let now = Moment::from_micros(1);
    let soon = Duration::from_secs(1);
    for way in [
        "leaves",
        "is given back",
        "gives up its place",
        "is kept too long",
    ] {
        let parking = Parking::default();
        let mut state = State::new(vec![], vec![], 0, parking.clone());
        state.acquire(&reader("lock", LONG), now).unwrap();
        let at_once = keyed("lock", LONG, key());
        let head = patient(at_once.clone());
        let behind = patient(reader("lock", LONG));
        let _places = [&head, &behind].map(|it| parking.park(it.name.clone(), it.token));
        for wanted in [&head, &behind] {
            let answer = state.acquire(wanted, now);
            assert!(matches!(answer, Ok(Acquisition::Queued(_))), "{answer:?}");
        }
        match way {
            "leaves" => drop(state.leave(&head.name, &head.token, None, now)),
            "is given back" => {
                state.give_back(&head.name, &head.token, None, now);
            }
            "gives up its place" => {
                let answer = state.acquire(&at_once, now);
                assert!(matches!(answer, Ok(Acquisition::Held(_))), "{answer:?}");
            }
            _ => {
                drop(state.leave(&head.name, &head.token, Some(soon), now));
                assert!(state.commit().is_empty(), "its place is kept");
                assert!(state.sweep(now.after(soon), 100));
            }
        }
        let told: Vec<_> = state.commit();
        let granted = told.last().expect("somebody is told");
        assert_eq!(granted.token, behind.token, "one {way}");
        assert!(matches!(granted.news, News::Granted(_)), "one {way}");
        assert_eq!(state.waiters(&name("lock")), 0);
    }
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
    // There may be no lease more than there is, so one is granted in the place of the writer.
    let shortage = Shortage {
        error: Unavailability::Overloaded.into(),
        room: 0,
    };
    state.bound(Some(shortage), now);
    let released = state.release(None, &writer.name, &writer.token, now);
    assert_eq!(released, Release::Released);
    assert_eq!(state.commit().len(), 1);
    // The other one is granted, and that cannot be written.
    state.bound(None, now);
    state.rollback();
    state.bound(None, now);
    let told = state.commit();
    assert_eq!(told.len(), 1, "nobody else would grant it");
    assert_eq!(told[0].token, readers[1].token);
}

#[test]
fn a_lease_that_was_asked_for_is_told_broken_only_if_that_has_ended_it() {
    for (within, is_broken) in [(500, true), (5_000, false)] {
        let mut state = State::new(vec![], vec![], 0, Parking::default());
        let now = Moment::from_micros(1);
        let attempt = attempt("lock", 2_000);
        state.acquire(&attempt, now).unwrap();
        let request = ReleaseRequest {
            by: None,
            reason: Reason::new("deploy").unwrap(),
            within: Duration::from_millis(within),
        };
        state
            .request_release(&attempt.name, None, &request, now)
            .unwrap();
        let later = now.after(Duration::from_secs(3));
        let renewal = state.renew(
            Renewer::Bearer,
            &attempt.name,
            &attempt.token,
            RenewalTtl::default(),
            later,
        );
        let loss = if is_broken {
            Loss::Broken { held: false }
        } else {
            Loss::Free
        };
        assert_eq!(renewal, Renewal::Lost(loss));
    }
}
