//! Clause 8: a lease that no caller waits for is released.

use crate::conformance::prelude::*;

pub(crate) async fn ends_a_grant(fixture: &dyn Fixture) {
    let (store, first) = holding(fixture, attempt("lock", LONG)).await;
    store.must_give_back(&first, GiveBack::GivenBack).await;
    assert!(is_free(&store, "lock").await);
    store.must_withdraw(&first).await;
    granted(&store, &attempt("lock", LONG)).await;
    // A repeated release of the undelivered lease ends no other lease.
    store.must_give_back(&first, GiveBack::NothingHeld).await;
    refused(&store, &attempt("lock", LONG)).await;
}

pub(crate) async fn before_the_acquire_arrives_refuses_it(fixture: &dyn Fixture) {
    let late = attempt("lock", LONG);
    let store = fixture.store();
    store.must_give_back(&late, GiveBack::NothingHeld).await;
    store.must_withdraw(&late).await;
    fixture.restart().await;
    fixture.store().must_withdraw(&late).await;
    assert!(is_free(&fixture.store(), "lock").await);
}

pub(crate) async fn racing_the_acquire_leaves_nothing_held(fixture: &dyn Fixture) {
    for turn in 0..30 {
        let lock = format!("lock:{turn}");
        let attempt = attempt(&lock, LONG);
        let (here, there) = (fixture.store(), fixture.store());
        let late = attempt.clone();
        let mut acquire = JoinSet::new();
        acquire.spawn(async move { there.acquire(&late).await });
        let outcome = here.give_back(&attempt.name, &attempt.token, None).await;
        let acquired = acquire.join_all().await.remove(0);
        match outcome.unwrap() {
            GiveBack::GivenBack => assert!(matches!(acquired, Ok(Acquisition::Granted(_)))),
            GiveBack::NothingHeld => assert_eq!(acquired, Err(Unavailability::Withdrawn.into())),
            GiveBack::Kept => panic!("it has no key"),
        }
        assert!(is_free(&fixture.store(), &lock).await);
    }
}

pub(crate) async fn does_not_touch_a_lease_that_was_answered_again(fixture: &dyn Fixture) {
    let key = key();
    let (_, first) = holding(fixture, keyed("lock", LONG, key)).await;
    fixture.store().must_replay(&keyed("lock", LONG, key)).await;
    for restarted in [false, true] {
        let store = fixture.restart_if(restarted).await;
        store.must_give_back(&first, GiveBack::Kept).await;
    }
    released(&fixture.store(), &first).await;
}

pub(crate) async fn ends_a_lease_with_a_key_that_was_answered_once(fixture: &dyn Fixture) {
    let key = key();
    let (store, first) = holding(fixture, keyed("lock", LONG, key)).await;
    store.must_give_back(&first, GiveBack::GivenBack).await;
    assert!(is_free(&store, "lock").await);
    store.must_expire(&keyed("lock", LONG, key)).await;
}

pub(crate) async fn leaves_others_and_other_names_alone(fixture: &dyn Fixture) {
    let (store, holder) = holding(fixture, attempt("lock", LONG)).await;
    for (lock, token) in [("lock", token()), ("other", holder.token)] {
        let outcome = store.give_back(&name(lock), &token, None).await;
        assert_eq!(outcome.unwrap(), GiveBack::NothingHeld, "{lock}");
    }
    granted(&store, &holder).await;
    released(&store, &holder).await;
}

pub(crate) async fn of_an_ended_lease_holds_nothing(fixture: &dyn Fixture) {
    let (store, gone) = holding(fixture, attempt("released", LONG)).await;
    released(&store, &gone).await;
    let over = store.must_hold(attempt("expired", SHORT)).await;
    store.until_free("expired").await;
    for ended in [gone, over] {
        store.must_give_back(&ended, GiveBack::NothingHeld).await;
        store.must_withdraw(&ended).await;
    }
}

pub(crate) async fn of_what_was_answered_to_nobody_leaves_the_key_usable(fixture: &dyn Fixture) {
    let key = key();
    let (store, first) = holding(fixture, keyed("lock", LONG, key)).await;
    give_back_unanswered(&store, &first, &first, GiveBack::GivenBack).await;
    // The first attempt is withdrawn; another attempt with the same idempotency key may still be granted the lock.
    let next = store.must_hold(keyed("lock", LONG, key)).await;
    give_back_unanswered(&store, &first, &first, GiveBack::NothingHeld).await;
    released(&store, &next).await;
}

pub(crate) async fn of_what_was_answered_to_nobody_is_for_its_recipient(fixture: &dyn Fixture) {
    let store = fixture.store();
    let key = key();
    let [first, newer, next] = [(); 3].map(|()| keyed("lock", LONG, key));
    granted(&store, &first).await;
    store.must_replay(&newer).await;
    // The attempt that keeps the lease may have delivered it.
    give_back_unanswered(&store, &first, &first, GiveBack::Kept).await;
    give_back_unanswered(&store, &first, &newer, GiveBack::GivenBack).await;
    granted(&store, &next).await;
    released(&store, &next).await;
}

/// Releases the undelivered lease of an attempt, on behalf of `recipient`.
async fn give_back_unanswered(
    store: &AnyStore,
    attempt: &Attempt,
    recipient: &Attempt,
    expected: GiveBack,
) {
    let recipient = RecipientId::of_attempt(&recipient.token);
    let (name, token) = (&attempt.name, &attempt.token);
    let outcome = store.give_back(name, token, Some(recipient)).await;
    assert_eq!(outcome, Ok(expected));
}
