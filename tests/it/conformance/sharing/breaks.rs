//! Clause 11 for shared locks: which leases a break ends, and when the caller must name one.

use latchgate::store::contract::BrokenLease;

use super::super::waiting::broken::listening;
use crate::conformance::prelude::*;

/// Longer than a message takes, also on a machine that does other work.
const LATE: Duration = Duration::from_mins(1);

/// Breaks `lock` at the last gateway.
async fn break_lock(fixture: &dyn Fixture, target: Option<BreakTarget>) -> Breaking {
    let breaking = fixture.last().break_lock(&name("lock"), target).await;
    breaking.unwrap()
}

/// Names a lease that does not hold `lock`, which `count` leases share. The break must have no effect.
async fn is_not_meant(fixture: &dyn Fixture, target: BreakTarget, count: u64) {
    match break_lock(fixture, Some(target)).await {
        Breaking::HolderChanged(Holder::Shared(shown)) => assert_eq!(shown.count, count),
        other => panic!("{target:?}: {other:?}"),
    }
}

async fn broken(fixture: &dyn Fixture, target: BreakTarget) -> Holder {
    fixture.last().must_break(&name("lock"), Some(target)).await
}

/// The fencing tokens of a holder's leases.
fn fences(holder: &Holder) -> HashSet<FencingToken> {
    holder.leases().iter().map(|lease| lease.fence).collect()
}

pub(crate) async fn with_a_fence_end_that_lease_and_no_other(fixture: &dyn Fixture) {
    let sharing = ["lock"; 3].map(|lock| one_of(3, lock, LONG));
    let leases = fixture.store().must_grant_each(&sharing).await;
    let meant = leases[1].fence;
    let Holder::Shared(SharedHolders { leases: gone, .. }) = broken(fixture, meant.into()).await
    else {
        panic!("it was shared");
    };
    assert_eq!(gone.len(), 1);
    assert_eq!((gone[0].fence, gone[0].mode), (meant, leases[1].mode));
    for restarted in [false, true] {
        let store = fixture.restart_if(restarted).await;
        store
            .must_have_lost(&sharing[1], Loss::Broken { held: true })
            .await;
        for other in [&sharing[0], &sharing[2]] {
            renewed(&store, other, LONG).await;
        }
        assert_eq!(holders(&store, "lock").await, 2);
    }
}

pub(crate) async fn of_all_end_all_that_share_it(fixture: &dyn Fixture) {
    let sharing = [
        one_of(4, "lock", LONG),
        reader("lock", 2 * LONG),
        one_of(4, "lock", LONG),
    ];
    let leases = fixture.store().must_grant_each(&sharing).await;
    granted(&fixture.store(), &reader("other", LONG)).await;
    let gone = broken(fixture, BreakTarget::All).await;
    let Holder::Shared(SharedHolders { count: 3, .. }) = gone else {
        panic!("three shared it: {gone:?}");
    };
    let expected: HashSet<_> = leases.iter().map(|lease| lease.fence).collect();
    assert_eq!(fences(&gone), expected);
    for lease in gone.leases() {
        assert!(lease.mode.is_shared(), "{lease:?}");
    }
    let store = fixture.store();
    assert!(is_free(&store, "lock").await);
    assert_eq!(holders(&store, "other").await, 1);
    for one in &sharing {
        store
            .must_have_lost(one, Loss::Broken { held: false })
            .await;
    }
    let next = granted(&store, &attempt("lock", LONG)).await;
    assert!(leases.iter().all(|lease| lease.fence < next.fence));
    for one in &sharing {
        store.must_have_lost(one, Loss::Broken { held: true }).await;
    }
}

pub(crate) async fn of_all_end_one_who_is_alone(fixture: &dyn Fixture) {
    let lease = granted(&fixture.store(), &attempt("lock", LONG)).await;
    match broken(fixture, BreakTarget::All).await {
        Holder::Lease(gone) => assert_eq!(gone.fence, lease.fence),
        other => panic!("it was held by one alone: {other:?}"),
    }
    assert!(is_free(&fixture.store(), "lock").await);
    let again = break_lock(fixture, Some(BreakTarget::All)).await;
    assert_eq!(again, Breaking::NotHeld);
}

pub(crate) async fn of_all_show_whole_what_they_end(fixture: &dyn Fixture) {
    const MANY: u64 = 120;
    let sharing: Vec<_> = (0..MANY).map(|_| reader("lock", LONG)).collect();
    let leases = fixture.store().must_grant_each(&sharing).await;
    let gone = broken(fixture, BreakTarget::All).await;
    assert_eq!(gone.count(), MANY);
    let expected: HashSet<_> = leases.iter().map(|lease| lease.fence).collect();
    assert_eq!(fences(&gone), expected);
    assert!(is_free(&fixture.store(), "lock").await);
}

pub(crate) async fn must_say_which_lease_is_meant(fixture: &dyn Fixture) {
    let sharing = [reader("lock", LONG), one_of(3, "lock", LONG)];
    for (before, one) in sharing.iter().enumerate() {
        granted(&fixture.store(), one).await;
        // A single shared lease must be named too: another one might have been granted meanwhile.
        match break_lock(fixture, None).await {
            Breaking::Ambiguous(shown) => {
                assert_eq!(shown.count, before as u64 + 1);
                assert_eq!(shown.leases.len(), before + 1);
            }
            other => panic!("not ambiguous: {other:?}"),
        }
        assert_eq!(holders(&fixture.store(), "lock").await, before as u64 + 1);
    }
    fixture.store().must_release_each(&sharing).await;
    assert_eq!(break_lock(fixture, None).await, Breaking::NotHeld);
}

pub(crate) async fn with_another_target_end_nothing(fixture: &dyn Fixture) {
    let sharing = ["lock"; 2].map(|lock| one_of(2, lock, LONG));
    let leases = fixture.store().must_grant_each(&sharing).await;
    let beyond = FencingToken::new(leases[1].fence.get() + 1).unwrap();
    let before = FencingToken::new(leases[0].fence.get() - 1).unwrap();
    let mark = ForeignMark::new(&"0".repeat(ForeignMark::DIGITS)).unwrap();
    for target in [beyond.into(), before.into(), mark.into()] {
        is_not_meant(fixture, target, 2).await;
    }
    fixture.store().must_release_each(&sharing).await;
}

pub(crate) async fn repeated_with_the_fence_end_no_other_lease(fixture: &dyn Fixture) {
    let sharing = ["lock"; 2].map(|lock| one_of(2, lock, LONG));
    let leases = fixture.store().must_grant_each(&sharing).await;
    let target = BreakTarget::from(leases[0].fence);
    broken(fixture, target).await;
    let next = one_of(2, "lock", LONG);
    let newer = granted(&fixture.store(), &next).await;
    // The newer lease has the same slot, but it is not the lease that was named.
    assert_eq!(newer.mode, leases[0].mode);
    is_not_meant(fixture, target, 2).await;
    fixture
        .store()
        .must_release_each([&next, &sharing[1]])
        .await;
    assert_eq!(break_lock(fixture, Some(target)).await, Breaking::NotHeld);
}

pub(crate) async fn do_not_reach_who_has_expired(fixture: &dyn Fixture) {
    let [over, kept] = [2 * SHORT, LONG].map(|ms| one_of(2, "lock", ms));
    let leases = fixture.store().must_grant_each(&[over.clone(), kept]).await;
    let store = fixture.store();
    until_holders(&store, 1).await;
    is_not_meant(fixture, leases[0].fence.into(), 1).await;
    let gone = broken(fixture, BreakTarget::All).await;
    assert_eq!(fences(&gone), HashSet::from([leases[1].fence]));
    store.must_lose(&over, Loss::Free).await;
}

pub(crate) async fn use_up_the_keys_and_outlast_late_copies(fixture: &dyn Fixture) {
    let (by_fence, by_all) = (key(), key());
    let sharing = [
        under(by_fence, one_of(3, "lock", LONG)),
        under(by_all, one_of(3, "lock", LONG)),
        one_of(3, "lock", LONG),
    ];
    let leases = fixture.store().must_grant_each(&sharing).await;
    broken(fixture, leases[0].fence.into()).await;
    broken(fixture, BreakTarget::All).await;
    for restarted in [false, true] {
        let store = fixture.restart_if(restarted).await;
        for one in &sharing {
            store.must_withdraw(one).await;
            store.must_give_back(one, GiveBack::NothingHeld).await;
        }
        for key in [by_fence, by_all] {
            let again = under(key, one_of(3, "lock", LONG));
            store.must_expire(&again).await;
        }
        assert!(is_free(&store, "lock").await);
    }
}

pub(crate) async fn are_heard_of_by_every_gateway(fixture: &dyn Fixture) {
    listening(fixture).await;
    let sharing = ["lock"; 4].map(|lock| reader(lock, LONG));
    let leases = fixture.store().must_grant_each(&sharing).await;
    let listeners = fixture.gateways();
    let mut listeners: Vec<_> = listeners.iter().map(|it| it.breaks().listen()).collect();
    broken(fixture, leases[2].fence.into()).await;
    broken(fixture, BreakTarget::All).await;
    let expected: HashSet<_> = sharing.iter().map(|one| one.token).collect();
    for listener in &mut listeners {
        let mut heard = HashSet::new();
        while heard != expected {
            let word = timeout(LATE, listener.recv()).await;
            let BrokenLease { name: lock, token } = word.expect("a word comes").unwrap();
            if lock == name("lock") {
                assert!(expected.contains(&token), "of somebody else");
                heard.insert(token);
            }
        }
    }
}
