//! Leases on a healthy server: what the scripts do.

use std::time::Duration;

use latchgate::{
    lock::{CallerId, Fingerprint, IdempotencyKey, Metadata, Owner, Salt, Ttl},
    store::{
        Store, StoreError, Unavailability,
        contract::{
            Acquisition, Attempt, Contention, GiveBack, Holder, Idempotency, Inspection, Loss,
            Release, Renewal,
        },
    },
};

use super::rig::{Rig, attempt, eventually, limit, name, token, ttl};

/// An attempt under an idempotency key.
pub(super) fn keyed(lock: &str, key: &str) -> Attempt {
    let mut attempt = attempt(lock);
    let key = IdempotencyKey::new(&format!("{key}-0123456789-0123456789")).unwrap();
    let salt = Salt::random();
    attempt.token = key
        .derive_token(&CallerId::ANONYMOUS, &attempt.name, &salt)
        .hash();
    attempt.idempotency = Some(Idempotency {
        hash: key.hash(&CallerId::ANONYMOUS, &attempt.name),
        fingerprint: Fingerprint::of(Some(attempt.ttl), None, None, None, &attempt.metadata),
        salt,
    });
    attempt
}

#[tokio::test]
async fn a_lease_is_shown_with_everything_it_was_asked_for() {
    let rig = Rig::start().await;
    let mut asked = attempt("shown");
    asked.owner = Some(Owner::new("ci \u{1f512} 7").unwrap());
    let entries = [
        ("build".to_owned(), "1\"2".to_owned()),
        ("x".to_owned(), String::new()),
    ];
    asked.metadata = Metadata::new(entries.into()).unwrap();
    asked.hold_limit = Some(limit(60_000));
    let lease = rig.grant(&asked).await;
    assert_eq!(lease.expires_in, Duration::from_secs(30));
    assert_eq!(lease.hold_expires_in, Some(Duration::from_mins(1)));

    let Inspection {
        holder: Some(Holder::Lease(seen)),
        ..
    } = rig.store.inspect(&asked.name).await.unwrap()
    else {
        panic!("the lock is held by a lease of ours");
    };
    assert_eq!(seen.fence, lease.fence);
    assert_eq!((seen.owner, seen.metadata), (asked.owner, asked.metadata));
    assert_eq!(seen.ttl, asked.ttl);
    assert!(seen.expires_in <= lease.expires_in && seen.expires_in > Duration::from_secs(20));
    // One is from TIME, the other from PTTL: a millisecond may end between them.
    let sum = seen.held_for + seen.expires_in;
    assert!(
        sum.abs_diff(lease.expires_in) <= Duration::from_millis(1),
        "{sum:?}"
    );
    let left = seen.hold_expires_in.unwrap();
    assert_eq!(left + seen.held_for, Duration::from_mins(1));
}

#[tokio::test]
async fn a_lock_that_is_held_is_refused_with_its_holder_and_free_after_release() {
    let rig = Rig::start().await;
    let (first, second) = (attempt("one"), attempt("one"));
    let lease = rig.grant(&first).await;
    match rig.store.acquire(&second).await.unwrap() {
        Acquisition::Held(Contention {
            holder: Some(Holder::Lease(holder)),
            ..
        }) => assert_eq!(holder.fence, lease.fence),
        other => panic!("{other:?}"),
    }
    let lost = rig.store.release(&first.name, &second.token).await.unwrap();
    assert_eq!(lost, Release::Lost(Loss::HeldByAnother));
    let released = rig.store.release(&first.name, &first.token).await.unwrap();
    assert_eq!(released, Release::Released);
    let lost = rig.store.release(&first.name, &first.token).await.unwrap();
    assert_eq!(lost, Release::Lost(Loss::Free));
    assert_eq!(
        rig.store.inspect(&first.name).await.unwrap(),
        super::expected::free()
    );
    assert!(rig.grant(&second).await.fence > lease.fence);
}

#[tokio::test]
async fn renewing_counts_from_now_and_a_new_ttl_becomes_the_leases_own() {
    let rig = Rig::start().await;
    let asked = attempt("renewed");
    let lease = rig.grant(&asked).await;
    for (given, own) in [
        (Some(ttl(90_000)), 90),
        (None, 90),
        (Some(ttl(5_000)), 5),
        (None, 5),
    ] {
        match rig
            .store
            .renew(&asked.name, &asked.token, given)
            .await
            .unwrap()
        {
            Renewal::Renewed(renewed, _) => {
                assert_eq!(renewed.fence, lease.fence);
                assert_eq!(renewed.ttl, ttl(own * 1_000));
                // With a shorter TTL the lease keeps its end.
                assert!(renewed.expires_in > Duration::from_secs(80), "{renewed:?}");
                assert!(renewed.expires_in <= Duration::from_secs(90), "{renewed:?}");
            }
            other => panic!("{other:?}"),
        }
    }
    let lost = rig.store.renew(&asked.name, &token(), None).await.unwrap();
    assert_eq!(lost, Renewal::Lost(Loss::HeldByAnother));
    let lost = rig
        .store
        .renew(&name("never"), &token(), None)
        .await
        .unwrap();
    assert_eq!(lost, Renewal::Lost(Loss::Free));
}

#[tokio::test]
async fn no_renewal_goes_past_the_hold_limit() {
    let rig = Rig::start().await;
    let mut asked = attempt("limited");
    asked.ttl = ttl(1_000);
    asked.hold_limit = Some(limit(1_500));
    rig.grant(&asked).await;
    let renewal = rig
        .store
        .renew(&asked.name, &asked.token, Some(ttl(60_000)))
        .await
        .unwrap();
    let Renewal::Renewed(lease, _) = renewal else {
        panic!("{renewal:?}");
    };
    assert!(
        lease.expires_in <= Duration::from_millis(1_500),
        "{lease:?}"
    );
    assert_eq!(lease.hold_expires_in, Some(lease.expires_in));
    // And it ends there, however often it is renewed.
    let loss = eventually("the lease reaches its hold limit", async || {
        match rig
            .store
            .renew(&asked.name, &asked.token, None)
            .await
            .unwrap()
        {
            Renewal::Renewed(..) => None,
            Renewal::Adopted => panic!("nobody adopted it"),
            Renewal::Lost(loss) => Some(loss),
        }
    });
    assert_eq!(loss.await, Loss::Free);
}

#[tokio::test]
async fn an_attempt_that_holds_the_lock_is_answered_its_lease_again() {
    let rig = Rig::start().await;
    let asked = attempt("twice");
    let lease = rig.grant(&asked).await;
    let again = rig.grant(&asked).await;
    assert_eq!((again.fence, again.ttl), (lease.fence, lease.ttl));
    assert!(
        again.expires_in <= lease.expires_in,
        "it was not granted anew"
    );
}

#[tokio::test]
async fn an_idempotency_key_answers_the_living_lease_and_is_refused_after_its_end() {
    let rig = Rig::start().await;
    let (first, second) = (keyed("keyed", "a"), keyed("keyed", "a"));
    let lease = rig.grant(&first).await;
    match rig.store.acquire(&second).await.unwrap() {
        Acquisition::Replayed(replayed, salt, _) => {
            assert_eq!(replayed.fence, lease.fence);
            assert_eq!(salt, first.idempotency.as_ref().unwrap().salt);
        }
        other => panic!("{other:?}"),
    }
    let mut different = keyed("keyed", "a");
    different.idempotency.as_mut().unwrap().fingerprint =
        Fingerprint::of(Some(Ttl::MAX), None, None, None, &Metadata::default());
    let mismatch = rig.store.acquire(&different).await.unwrap();
    assert_eq!(mismatch, Acquisition::IdempotencyMismatch);
    let held = rig.store.acquire(&keyed("keyed", "b")).await.unwrap();
    assert!(matches!(held, Acquisition::Held(_)), "{held:?}");

    for _ in 0..2 {
        let released = rig.store.release(&first.name, &first.token).await.unwrap();
        assert_eq!(
            released,
            Release::Released,
            "a repeated release is a release"
        );
    }
    let expired = rig.store.acquire(&second).await.unwrap();
    assert_eq!(expired, Acquisition::IdempotencyExpired);
    let other = rig.grant(&keyed("keyed", "b")).await;
    assert!(other.fence > lease.fence);
    let expired = rig.store.acquire(&second).await.unwrap();
    assert_eq!(
        expired,
        Acquisition::IdempotencyExpired,
        "also while another holds the lock"
    );
    let released = rig.store.release(&first.name, &first.token).await.unwrap();
    assert_eq!(
        released,
        Release::Released,
        "also while another holds the lock"
    );
}

#[tokio::test]
async fn an_idempotency_key_is_refused_after_its_lease_has_run_out() {
    let rig = Rig::start().await;
    let mut asked = keyed("ran-out", "a");
    asked.ttl = ttl(1_000);
    rig.grant(&asked).await;
    // A renewal moves what is remembered along with the lease.
    rig.store
        .renew(&asked.name, &asked.token, Some(ttl(1_500)))
        .await
        .unwrap();
    eventually("the lease runs out", async || {
        let inspection = rig.store.inspect(&asked.name).await.unwrap();
        (inspection == super::expected::free()).then_some(())
    })
    .await;
    let expired = rig.store.acquire(&keyed("ran-out", "a")).await.unwrap();
    assert_eq!(expired, Acquisition::IdempotencyExpired);
}

#[tokio::test]
async fn what_is_given_back_is_free_and_never_granted_again() {
    let rig = Rig::start().await;
    let (held, coming) = (attempt("back"), attempt("back"));
    rig.grant(&held).await;
    let outcome = rig
        .store
        .give_back(&held.name, &coming.token)
        .await
        .unwrap();
    assert_eq!(outcome, GiveBack::NothingHeld);
    let outcome = rig.store.give_back(&held.name, &held.token).await.unwrap();
    assert_eq!(outcome, GiveBack::GivenBack);
    assert_eq!(
        rig.store.inspect(&held.name).await.unwrap(),
        super::expected::free()
    );
    for late in [&held, &coming] {
        let refused = rig.store.acquire(late).await.unwrap_err();
        assert_eq!(refused, StoreError::Unavailable(Unavailability::Withdrawn));
    }
    let outcome = rig.store.give_back(&held.name, &held.token).await.unwrap();
    assert_eq!(outcome, GiveBack::NothingHeld);
    rig.grant(&attempt("back")).await;
}

#[tokio::test]
async fn a_lease_that_was_answered_again_under_its_key_is_not_given_back() {
    let rig = Rig::start().await;
    let (first, second) = (keyed("kept", "a"), keyed("kept", "a"));
    let lease = rig.grant(&first).await;
    rig.store.acquire(&second).await.unwrap();
    let outcome = rig
        .store
        .give_back(&first.name, &first.token)
        .await
        .unwrap();
    assert_eq!(outcome, GiveBack::Kept);
    match rig.store.inspect(&first.name).await.unwrap() {
        Inspection {
            holder: Some(Holder::Lease(seen)),
            ..
        } => assert_eq!(seen.fence, lease.fence),
        other => panic!("{other:?}"),
    }
    // The key of one that was given back is refused like that of any lease that has ended.
    let gone = keyed("gone", "a");
    rig.grant(&gone).await;
    let outcome = rig.store.give_back(&gone.name, &gone.token).await.unwrap();
    assert_eq!(outcome, GiveBack::GivenBack);
    let expired = rig.store.acquire(&keyed("gone", "a")).await.unwrap();
    assert_eq!(expired, Acquisition::IdempotencyExpired);
}
