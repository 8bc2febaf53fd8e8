//! Releases of leases that are answered again, or adopted, while the release is under way.

use std::{sync::Arc, time::Duration};

use tokio::time::sleep;

use crate::{
    engine::{Engine, ReleaseError, without_caller},
    lock::{RecipientId, Token, TokenHash},
    store::contract::{Acquisition, Loss, Release, Releaser},
};

use super::scripted_store::*;

const TTL: Duration = Duration::from_secs(30);

/// Releases a lease for a caller with its token.
fn release(
    engine: &Engine,
    token: TokenHash,
) -> impl Future<Output = Result<(), ReleaseError>> + Send + use<> {
    let engine = Engine(Arc::clone(&engine.0));
    async move { engine.release(name(), token, None).await }
}

fn recipient_of(releaser: Releaser) -> RecipientId {
    releaser
        .recipient()
        .expect("every release names a recipient")
}

#[tokio::test(start_paused = true)]
async fn a_release_names_the_recipient_that_the_lease_had_when_the_release_came() {
    let (store, engine) = engine_on(ScriptedStore::answering(Ok(granted())));
    let unknown = Token::random().hash();
    let first = engine.acquire(request(KEY)).await.unwrap();
    let token = first.hash;
    for (token, recipient) in [(unknown, unknown), (token, token)] {
        drop(release(&engine, token).await);
        let named = recipient_of(*store.releasers.lock().last().unwrap());
        assert_eq!(named, RecipientId::of_attempt(&recipient));
    }
    first.delivery.delivered();
    let (store, engine) = engine_on(ScriptedStore::answering(Ok(granted())));
    let first = engine.acquire(request(KEY)).await.unwrap();
    let salt = store.attempts.lock()[0].idempotency.as_ref().unwrap().salt;
    let again = Acquisition::Replayed(first.lease.held.clone(), salt);
    store.acquisitions.lock().push_back(Ok(again));
    first.delivery.delivered();
    let again = engine.acquire(request(KEY)).await.unwrap();
    again.delivery.delivered();
    let adopter = RecipientId::of_attempt(&store.attempts.lock()[1].token);
    drop(release(&engine, first.hash).await);
    assert_eq!(recipient_of(store.releasers.lock()[0]), adopter);
    assert_eq!(store.releasers.lock().len(), 1, "one command");
}

#[tokio::test(start_paused = true)]
async fn a_release_ends_a_lease_that_was_adopted_elsewhere_only_while_its_caller_waits() {
    for (hangs_up, takes, ends) in [
        (false, Duration::ZERO, true),
        (false, Duration::from_millis(999), true),
        // The caller may have gone without a sign.
        (false, Duration::from_secs(1), false),
        (true, Duration::ZERO, false),
    ] {
        let (store, engine) = engine_on(ScriptedStore::answering(Ok(granted())).with_closed_gate());
        store.releases.lock().push_back(Release::Released(None));
        let token = Token::random().hash();
        let caller = start(release(&engine, token)).await;
        let adopter = RecipientId::random();
        *store.adopted_by.lock() = Some(adopter);
        sleep(takes).await;
        if hangs_up {
            caller.abort();
            settle().await;
        }
        store.open_gate();
        settle().await;
        let releasers: Vec<_> = store.releasers.lock().drain(..).collect();
        let expected = if ends {
            &[Releaser::Recipient(adopter)][..]
        } else {
            &[]
        };
        assert_eq!(releasers, expected, "{hangs_up} {takes:?}");
        match caller.await {
            Ok(released) if ends => released.unwrap(),
            Ok(released) => assert!(matches!(released, Err(ReleaseError::AnsweredAgain))),
            Err(_) => assert!(hangs_up),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_that_begins_after_its_caller_hung_up_names_no_later_recipient() {
    let (store, engine) = engine_on(ScriptedStore::answering(Ok(granted())));
    let first = engine.acquire(request(None)).await.unwrap();
    let token = first.hash;
    first.delivery.delivered();
    let waiting = without_caller(release(&engine, token));
    sleep(Duration::from_millis(1)).await;
    let adopted = adopted(&engine, &first.lease.token).await;
    let released = waiting.await;
    assert!(
        matches!(released, Err(ReleaseError::AnsweredAgain)),
        "{released:?}"
    );
    assert!(store.releasers.lock().is_empty());
    drop(adopted);
}

#[tokio::test(start_paused = true)]
async fn a_repeated_release_of_a_lease_whose_time_is_not_over_is_no_sign_that_it_expired() {
    for (after, expired) in [(TTL / 2, 0), (TTL, 1)] {
        let (store, engine) = engine_on(ScriptedStore::answering(Ok(granted())));
        let granted = engine.acquire(request(None)).await.unwrap();
        let token = granted.hash;
        granted.delivery.delivered();
        sleep(after).await;
        // Another gateway has released the lease, and its answer was lost.
        let lost = Release::Lost(Loss::Free);
        store.releases.lock().push_back(lost);
        release(&engine, token).await.unwrap_err();
        let totals = engine.metrics().totals();
        assert_eq!(totals.expired_while_held, expired, "{after:?}");
    }
}
