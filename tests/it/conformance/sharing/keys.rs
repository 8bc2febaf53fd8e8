//! Clauses 3, 8 and 9 for shared locks: repeated requests, undelivered leases, and adoption.

use crate::conformance::{leases::recipients::replaced, prelude::*};

/// Two leases that share `lock` up to its limit. The first has an idempotency key.
async fn full(fixture: &dyn Fixture, key: IdempotencyHash) -> [Attempt; 2] {
    let (first, second) = (under(key, one_of(2, "lock", LONG)), one_of(2, "lock", LONG));
    fixture.store().must_grant_each([&first, &second]).await;
    [first, second]
}

fn salt(attempt: &Attempt) -> Option<Salt> {
    attempt.idempotency.as_ref().map(|it| it.salt)
}

pub(crate) async fn a_lost_reply_is_answered_again_with_the_same_lease_and_slot(
    fixture: &dyn Fixture,
) {
    let store = fixture.store();
    let sharing = [
        one_of(3, "lock", LONG),
        reader("lock", LONG),
        under(key(), one_of(3, "lock", LONG)),
    ];
    let told = store.must_grant_each(&sharing).await;
    // No further attempt is granted the lock by then.
    refused(&store, &one_of(3, "lock", LONG)).await;
    for (one, told) in sharing.iter().zip(&told) {
        for store in fixture.gateways() {
            let again = granted(&store, one).await;
            assert_eq!((again.fence, again.mode), (told.fence, told.mode));
        }
    }
    assert_eq!(holders(&store, "lock").await, 3);
}

pub(crate) async fn the_same_key_answers_the_same_lease_however_many_share_it(
    fixture: &dyn Fixture,
) {
    let key = key();
    let [first, second] = full(fixture, key).await;
    let told = granted(&fixture.store(), &first).await;
    for restarted in [false, true] {
        fixture.restart_if(restarted).await;
        for store in fixture.gateways() {
            let again = under(key, one_of(2, "lock", LONG));
            let (held, again) = store.must_replay(&again).await;
            assert_eq!((held.fence, held.mode), (told.fence, told.mode));
            assert_eq!(Some(again), salt(&first));
        }
        assert_eq!(holders(&fixture.store(), "lock").await, 2);
    }
    released(&fixture.store(), &second).await;
    released(&fixture.store(), &first).await;
}

pub(crate) async fn the_same_key_in_another_mode_or_with_another_limit_is_a_mismatch(
    fixture: &dyn Fixture,
) {
    let store = fixture.store();
    let (key, alone) = (key(), key());
    let [first, _second] = full(fixture, key).await;
    for other in [
        attempt("lock", LONG),
        reader("lock", LONG),
        one_of(3, "lock", LONG),
    ] {
        store.must_mismatch(&under(key, other)).await;
    }
    released(&store, &first).await;

    granted(&store, &under(alone, attempt("alone", LONG))).await;
    for other in [reader("alone", LONG), one_of(3, "alone", LONG)] {
        store.must_mismatch(&under(alone, other)).await;
    }
}

pub(crate) async fn a_key_is_refused_after_the_release_while_others_share_it(
    fixture: &dyn Fixture,
) {
    let key = key();
    let [first, _second] = full(fixture, key).await;
    released(&fixture.store(), &first).await;
    for restarted in [false, true] {
        fixture.restart_if(restarted).await;
        is_used(fixture, key).await;
        // A release with an idempotency key may be repeated.
        released(&fixture.store(), &first).await;
    }
    assert_eq!(holders(&fixture.store(), "lock").await, 1);
}

pub(crate) async fn a_key_is_refused_after_the_expiry_while_others_share_it(fixture: &dyn Fixture) {
    let key = key();
    for one in [
        under(key, one_of(2, "lock", 2 * SHORT)),
        one_of(2, "lock", LONG),
    ] {
        granted(&fixture.store(), &one).await;
    }
    until_holders(&fixture.store(), 1).await;
    is_used(fixture, key).await;
    assert_eq!(holders(&fixture.store(), "lock").await, 1);
}

async fn is_used(fixture: &dyn Fixture, key: IdempotencyHash) {
    let again = under(key, one_of(2, "lock", LONG));
    fixture.store().must_expire(&again).await;
}

pub(crate) async fn many_concurrent_attempts_under_one_key_are_one_grant(fixture: &dyn Fixture) {
    let key = key();
    granted(&fixture.store(), &reader("lock", LONG)).await;
    let mut attempts = JoinSet::new();
    for store in fixture.gateways().into_iter().cycle().take(32) {
        attempts.spawn(async move {
            let attempt = under(key, one_of(9, "lock", LONG));
            match store.acquire(&attempt).await.unwrap() {
                Acquisition::Granted(held) => (held.fence, held.mode, salt(&attempt), true),
                Acquisition::Replayed(held, salt) => (held.fence, held.mode, Some(salt), false),
                other => panic!("neither granted nor replayed: {other:?}"),
            }
        });
    }
    let answers = attempts.join_all().await;
    let (fence, mode, salt, _) = answers[0];
    assert_eq!(answers.iter().filter(|(.., new)| *new).count(), 1);
    let same = |it: &(_, _, _, bool)| (it.0, it.1, it.2) == (fence, mode, salt);
    assert!(answers.iter().all(same), "{answers:?}");
    assert_eq!(holders(&fixture.store(), "lock").await, 2);
}

pub(crate) async fn different_keys_are_different_holders(fixture: &dyn Fixture) {
    let store = fixture.store();
    let sharing = ["lock"; 3].map(|lock| under(key(), one_of(3, lock, LONG)));
    for (one, slot) in sharing.iter().zip(0..) {
        assert_eq!(granted(&store, one).await.mode.slot(), Some(slot));
    }
    refused(&store, &under(key(), one_of(3, "lock", LONG))).await;
}

pub(crate) async fn a_give_back_ends_the_one_and_no_other(fixture: &dyn Fixture) {
    let store = fixture.store();
    let [first, second] = full(fixture, key()).await;
    for (one, left) in [(&first, 1), (&second, 0)] {
        store.must_give_back(one, GiveBack::GivenBack).await;
        assert_eq!(holders(&store, "lock").await, left);
        // A copy of the acquire that arrives late is not granted, although there is room.
        store.must_withdraw(one).await;
        store.must_give_back(one, GiveBack::NothingHeld).await;
    }
    assert!(is_free(&store, "lock").await);
}

pub(crate) async fn a_give_back_before_the_acquire_arrives_refuses_it(fixture: &dyn Fixture) {
    granted(&fixture.store(), &reader("lock", LONG)).await;
    let late = one_of(9, "lock", LONG);
    let store = fixture.store();
    store.must_give_back(&late, GiveBack::NothingHeld).await;
    for restarted in [false, true] {
        fixture.restart_if(restarted).await;
        fixture.store().must_withdraw(&late).await;
    }
    assert_eq!(holders(&fixture.store(), "lock").await, 1);
}

pub(crate) async fn a_give_back_racing_the_acquire_leaves_nothing_held(fixture: &dyn Fixture) {
    granted(&fixture.store(), &reader("lock", LONG)).await;
    let stores = fixture.gateways();
    for _turn in 0..20 {
        let racing = one_of(2, "lock", LONG);
        let (late, there) = (racing.clone(), stores[stores.len() - 1].clone());
        let mut acquire = JoinSet::new();
        acquire.spawn(async move { there.acquire(&late).await });
        let outcome = stores[0].give_back(&racing.name, &racing.token, None).await;
        let acquired = acquire.join_all().await.remove(0);
        match outcome.unwrap() {
            GiveBack::GivenBack => assert!(matches!(acquired, Ok(Acquisition::Granted(_)))),
            GiveBack::NothingHeld => assert_eq!(acquired, Err(Unavailability::Withdrawn.into())),
            GiveBack::Kept => panic!("it has no key"),
        }
        assert_eq!(holders(&stores[0], "lock").await, 1);
    }
}

pub(crate) async fn a_lease_that_was_answered_again_is_not_given_back(fixture: &dyn Fixture) {
    let key = key();
    let [first, second] = full(fixture, key).await;
    let again = under(key, one_of(2, "lock", LONG));
    fixture.store().must_replay(&again).await;
    let store = fixture.store();
    store.must_give_back(&first, GiveBack::Kept).await;
    // The lease of the second attempt has no other recipient, so it is released.
    store.must_give_back(&second, GiveBack::GivenBack).await;
    released(&fixture.store(), &first).await;
}

pub(crate) async fn each_has_a_recipient_of_its_own(fixture: &dyn Fixture) {
    let store = fixture.store();
    let [first, second] = full(fixture, key()).await;
    let [adopter, stranger] = [RecipientId::random(), RecipientId::random()];
    store.must_renew_as(Renewer::Adopter(adopter), &first).await;
    // The former recipient of the first lease can no longer end it, and the recipient of the first lease cannot end the
    // second.
    let [kept, keeps] = [&first, &second].map(|lease| RecipientId::of_attempt(&lease.token));
    let cases = [
        (&first, kept, adopter),
        (&first, stranger, adopter),
        (&second, kept, keeps),
        (&second, adopter, keeps),
    ];
    for (lease, recipient, keeps) in cases {
        let renewal = renew_as(&store, Renewer::Recipient(recipient), lease).await;
        assert_eq!(renewal, Renewal::Adopted);
        let release = store.release_as(
            Releaser::Recipient(recipient),
            &lease.name,
            &lease.token,
            true,
        );
        assert_eq!(release.await.unwrap(), Release::Adopted(keeps));
    }
    store.must_give_back(&first, GiveBack::Kept).await;
    assert_eq!(holders(&store, "lock").await, 2);
    for (lease, recipient) in [
        (&first, adopter),
        (&second, RecipientId::of_attempt(&second.token)),
    ] {
        store
            .must_renew_as(Renewer::Recipient(recipient), lease)
            .await;
        let release = store.release_as(
            Releaser::Recipient(recipient),
            &lease.name,
            &lease.token,
            true,
        );
        assert!(matches!(release.await, Ok(Release::Released(_))));
    }
    assert!(is_free(&store, "lock").await);
}

pub(crate) async fn an_older_request_of_the_key_is_told_that_it_is_replaced(fixture: &dyn Fixture) {
    let key = key();
    let [older, _second] = full(fixture, key).await;
    let newer = under(key, one_of(2, "lock", LONG));
    fixture.store().must_replay(&newer).await;
    replaced(fixture, &older).await;
    let recipient = Renewer::Recipient(RecipientId::of_attempt(&newer.token));
    fixture.store().must_renew_as(recipient, &older).await;
}

async fn renew_as(store: &AnyStore, renewer: Renewer, lease: &Attempt) -> Renewal {
    let renewal = store.renew_as(renewer, &lease.name, &lease.token, Some(ttl(LONG)).into());
    renewal.await.unwrap()
}
