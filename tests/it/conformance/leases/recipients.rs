//! Clause 9: a lease has one recipient, the last one that adopted it.

use crate::conformance::prelude::*;

pub(crate) async fn the_attempt_that_was_granted_keeps_it(fixture: &dyn Fixture) {
    let lease = held(fixture).await;
    kept(fixture, &lease, first(&lease)).await;
    not_kept(fixture, &lease, RecipientId::random(), first(&lease)).await;
    ends_as(fixture, &lease, first(&lease), Release::Released(None)).await;
    assert!(is_free(&fixture.store(), "lock").await);
}

pub(crate) async fn whoever_it_was_adopted_from_ends_nothing(fixture: &dyn Fixture) {
    let (lease, adopter) = held_and_adopted(fixture).await;
    not_kept(fixture, &lease, first(&lease), adopter).await;
    kept(fixture, &lease, adopter).await;
    ends_as(fixture, &lease, adopter, Release::Released(None)).await;
    assert!(is_free(&fixture.store(), "lock").await);
}

pub(crate) async fn whoever_it_was_adopted_from_does_not_renew_it_either(fixture: &dyn Fixture) {
    let lease = held(fixture).await;
    adopted(fixture, &lease).await;
    let older = Renewer::Recipient(first(&lease));
    let renewal = renewed_as(fixture, &lease, older, 2 * LONG).await;
    assert_eq!(renewal, Renewal::Adopted);
    let renewed = fixture.store().must_renew(&lease, None).await;
    assert_eq!(renewed.ttl, ttl(LONG), "unchanged");
}

pub(crate) async fn the_last_to_adopt_it_keeps_it(fixture: &dyn Fixture) {
    let lease = held(fixture).await;
    let second = adopted(fixture, &lease).await;
    let third = adopted(fixture, &lease).await;
    for older in [first(&lease), second] {
        not_kept(fixture, &lease, older, third).await;
    }
    kept(fixture, &lease, third).await;
}

pub(crate) async fn of_many_who_adopt_it_together_one_keeps_it(fixture: &dyn Fixture) {
    let lease = held(fixture).await;
    let stores = fixture.gateways();
    let adopters: Vec<_> = (0..20).map(|_| RecipientId::random()).collect();
    let mut adoptions = JoinSet::new();
    for (store, id) in stores.iter().cycle().zip(&adopters) {
        let (store, lease, adopter) = (store.clone(), lease.clone(), Renewer::Adopter(*id));
        adoptions.spawn(async move { store.must_renew_as(adopter, &lease).await });
    }
    adoptions.join_all().await;
    let mut recipients = 0;
    for id in adopters {
        match renewed_as(fixture, &lease, Renewer::Recipient(id), LONG).await {
            Renewal::Renewed(..) => recipients += 1,
            other => assert_eq!(other, Renewal::Adopted),
        }
    }
    assert_eq!(recipients, 1);
}

pub(crate) async fn an_adoption_may_be_repeated(fixture: &dyn Fixture) {
    let lease = held(fixture).await;
    let id = RecipientId::random();
    for _ in 0..3 {
        fixture
            .store()
            .must_renew_as(Renewer::Adopter(id), &lease)
            .await;
        kept(fixture, &lease, id).await;
    }
    not_kept(fixture, &lease, first(&lease), id).await;
}

pub(crate) async fn the_token_alone_renews_and_releases_whoever_keeps_it(fixture: &dyn Fixture) {
    let (lease, adopter) = held_and_adopted(fixture).await;
    fixture.store().must_renew_as(Renewer::Bearer, &lease).await;
    kept(fixture, &lease, adopter).await;
    released(&fixture.store(), &lease).await;
    ends_as(fixture, &lease, adopter, Release::Lost(Loss::Free)).await;
}

pub(crate) async fn an_answer_under_the_key_makes_a_recipient(fixture: &dyn Fixture) {
    let key = key();
    let (store, lease) = holding(fixture, keyed("lock", LONG, key)).await;
    let mut before = first(&lease);
    // The former recipient also loses the lease if it has been answered again before.
    for _ in 0..3 {
        let again = keyed("lock", LONG, key);
        store.must_replay(&again).await;
        not_kept(fixture, &lease, before, first(&again)).await;
        before = first(&again);
        kept(fixture, &lease, before).await;
    }
    ends_as(fixture, &lease, before, Release::Released(None)).await;
}

pub(crate) async fn an_older_request_of_the_key_is_told_that_it_is_replaced(fixture: &dyn Fixture) {
    let key = key();
    let older = keyed("lock", LONG, key);
    let newer = keyed("lock", LONG, key);
    granted(&fixture.store(), &older).await;
    fixture.store().must_replay(&newer).await;
    replaced(fixture, &older).await;
    kept(fixture, &older, first(&newer)).await;
}

pub(crate) async fn an_adopted_lease_is_not_given_back(fixture: &dyn Fixture) {
    let store = fixture.store();
    let (lease, adopter) = held_and_adopted(fixture).await;
    store.must_give_back(&lease, GiveBack::Kept).await;
    kept(fixture, &lease, adopter).await;
}

pub(crate) async fn the_recipient_of_one_lease_is_none_of_the_next(fixture: &dyn Fixture) {
    let (lease, adopter) = held_and_adopted(fixture).await;
    released(&fixture.store(), &lease).await;
    let next = held(fixture).await;
    ends_as(fixture, &lease, adopter, Release::Lost(Loss::HeldByAnother)).await;
    not_kept(fixture, &next, adopter, first(&next)).await;
    kept(fixture, &next, first(&next)).await;
}

pub(crate) async fn a_lease_is_adopted_after_a_restart(fixture: &dyn Fixture) {
    let (lease, before) = held_and_adopted(fixture).await;
    fixture.restart().await;
    let after = adopted(fixture, &lease).await;
    for older in [first(&lease), before] {
        not_kept(fixture, &lease, older, after).await;
    }
    kept(fixture, &lease, after).await;
}

pub(crate) async fn an_adoption_that_was_given_back_is_refused(fixture: &dyn Fixture) {
    let lease = held(fixture).await;
    let (store, given_up) = (fixture.store(), RecipientId::random());
    let given_back = store
        .give_back(&lease.name, &given_up.attempt(), None)
        .await;
    assert_eq!(given_back, Ok(GiveBack::NothingHeld));
    let late = renewed_as(fixture, &lease, Renewer::Adopter(given_up), LONG).await;
    assert_eq!(late, Renewal::Adopted);
    kept(fixture, &lease, first(&lease)).await;
}

pub(crate) async fn an_ended_lease_is_not_adopted(fixture: &dyn Fixture) {
    let lease = held(fixture).await;
    released(&fixture.store(), &lease).await;
    let adopter = Renewer::Adopter(RecipientId::random());
    let renewal = renewed_as(fixture, &lease, adopter, LONG).await;
    assert_eq!(renewal, Renewal::Lost(Loss::Free));
    assert!(is_free(&fixture.store(), "lock").await);
}

/// Asserts that each further command of the older attempt, at any gateway, is answered as replaced, because an
/// earlier such answer may have been lost.
pub(crate) async fn replaced(fixture: &dyn Fixture, older: &Attempt) {
    for store in fixture.gateways() {
        store.must_answer(older, Acquisition::Replaced).await;
        store.must_be_replaced(older, None).await;
        let confirmed = Confirmation::Replaced;
        store.must_not_confirm(older, confirmed).await;
    }
}

async fn held(fixture: &dyn Fixture) -> Attempt {
    holding(fixture, attempt("lock", LONG)).await.1
}

/// A lease, and the recipient that has adopted it.
async fn held_and_adopted(fixture: &dyn Fixture) -> (Attempt, RecipientId) {
    let lease = held(fixture).await;
    let adopter = adopted(fixture, &lease).await;
    (lease, adopter)
}

/// The recipient of an attempt's own lease.
fn first(attempt: &Attempt) -> RecipientId {
    RecipientId::of_attempt(&attempt.token)
}

async fn adopted(fixture: &dyn Fixture, lease: &Attempt) -> RecipientId {
    let id = RecipientId::random();
    let (store, renewer) = (fixture.store(), Renewer::Adopter(id));
    store.must_renew_as(renewer, lease).await;
    id
}

/// Asserts that this recipient can renew the lease.
async fn kept(fixture: &dyn Fixture, lease: &Attempt, recipient: RecipientId) {
    let (store, renewer) = (fixture.store(), Renewer::Recipient(recipient));
    store.must_renew_as(renewer, lease).await;
}

/// Asserts that this recipient can neither renew nor release the lease, which lives on, and is told which recipient has
/// it.
async fn not_kept(
    fixture: &dyn Fixture,
    lease: &Attempt,
    recipient: RecipientId,
    keeps: RecipientId,
) {
    let renewal = renewed_as(fixture, lease, Renewer::Recipient(recipient), LONG).await;
    assert_eq!(renewal, Renewal::Adopted);
    ends_as(fixture, lease, recipient, Release::Adopted(keeps)).await;
    assert!(!is_free(&fixture.store(), "lock").await);
}

async fn renewed_as(fixture: &dyn Fixture, lease: &Attempt, renewer: Renewer, ms: u64) -> Renewal {
    let (store, ttl) = (fixture.store(), Some(ttl(ms)));
    let renewal = store.renew_as(renewer, &lease.name, &lease.token, ttl.into());
    renewal.await.unwrap()
}

async fn ends_as(
    fixture: &dyn Fixture,
    lease: &Attempt,
    recipient: RecipientId,
    expected: Release,
) {
    let store = fixture.store();
    let release = store.release_as(
        Releaser::Recipient(recipient),
        &lease.name,
        &lease.token,
        true,
    );
    let release = match release.await.unwrap() {
        Release::Released(_) => Release::Released(None),
        other => other,
    };
    assert_eq!(release, expected);
}
