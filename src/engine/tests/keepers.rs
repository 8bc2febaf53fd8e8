//! A stream renews, and releases, as the keeper that it is, and tells how its place moves.

use std::time::Duration;

use tokio::time::sleep;

use super::scripted_store::*;
use crate::{
    auth::Authorization,
    engine::{HoldEnd, HoldEvent, LossReason},
    lock::{KeeperId, Token},
    store::parking::{News, Position},
};

fn at(ahead: u64) -> Position {
    Position { ahead, waiters: 9 }
}

#[tokio::test(start_paused = true)]
async fn a_release_that_is_not_answered_is_tried_again_as_the_same_keeper() {
    let store = ScriptedStore::answering(Ok(granted()));
    store.release_errors.lock().push_back(unknown());
    let (engine, _lifecycle) = engine(&store);
    let hold = engine.hold(request(None)).await.unwrap();
    settle().await;
    drop(hold);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(store.released.lock().len(), 1);
    assert_eq!(store.given_back(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_release_that_is_tried_again_ends_nothing_that_was_adopted_meanwhile() {
    let store = ScriptedStore::answering(Ok(granted()));
    store.release_errors.lock().push_back(unknown());
    let (engine, _lifecycle) = engine(&store);
    let hold = engine.hold(request(None)).await.unwrap();
    settle().await;
    *store.adopted_by.lock() = Some(KeeperId::random());
    drop(hold);
    sleep(Duration::from_secs(10)).await;
    assert!(store.released.lock().is_empty());
    assert_eq!(store.given_back(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_hint_that_another_adopted_the_lease_is_not_believed_without_the_store() {
    let (store, engine) = engine_on(ScriptedStore::answering(Ok(granted())));
    let token = Token::random();
    let mut older = engine
        .adopt(name(), token.clone(), Authorization::default())
        .await
        .unwrap();
    assert!(matches!(older.next().await, Some(HoldEvent::Granted(_))));
    let keeps = *store.adopted_by.lock();
    let mut newer = engine
        .adopt(name(), token, Authorization::default())
        .await
        .unwrap();
    // In the store it was the other way round.
    *store.adopted_by.lock() = keeps;
    assert!(matches!(newer.next().await, Some(HoldEvent::Granted(_))));
    assert!(matches!(older.next().await, Some(HoldEvent::Renewed(_))));
    let end = newer.next().await;
    let adopted = matches!(
        end,
        Some(HoldEvent::Ended(HoldEnd::Lost(LossReason::Adopted)))
    );
    assert!(adopted, "{end:?}");
    assert!(matches!(older.next().await, Some(HoldEvent::Renewed(_))));
}

#[tokio::test(start_paused = true)]
async fn a_place_that_moves_is_told_and_one_that_stays_is_not() {
    let (store, engine) = engine_on(ScriptedStore::queueing());
    let mut hold = engine.hold(waiting_request(None)).await.unwrap();
    assert!(matches!(
        hold.next().await,
        Some(HoldEvent::Queued(Position { ahead: 2, .. }))
    ));
    let token = store.attempts.lock()[0].token;
    for ahead in [2, 2, 1, 1, 0] {
        store.parking.publish_position(&token, at(ahead));
        settle().await;
    }
    for ahead in [1, 0] {
        let event = hold.next().await;
        let told = matches!(event, Some(HoldEvent::Queued(position)) if position == at(ahead));
        assert!(told, "{event:?}");
        // Told one by one, as soon as the one before was read.
        sleep(Duration::from_secs(1)).await;
    }
    store.tell(News::Granted(held()));
    assert!(matches!(hold.next().await, Some(HoldEvent::Granted(_))));
    assert!(
        store.parking.watched_by_name().is_empty(),
        "nobody watches any more"
    );
}

#[tokio::test(start_paused = true)]
async fn whoever_reads_slowly_is_told_the_last_place_and_keeps_it() {
    let (store, engine) = engine_on(ScriptedStore::queueing());
    let mut hold = engine.hold(waiting_request(None)).await.unwrap();
    let token = store.attempts.lock()[0].token;
    for ahead in (3..200).rev() {
        store.parking.publish_position(&token, at(ahead));
        settle().await;
    }
    assert!(matches!(
        hold.next().await,
        Some(HoldEvent::Queued(Position { ahead: 2, .. }))
    ));
    let event = hold.next().await;
    assert!(
        matches!(event, Some(HoldEvent::Queued(position)) if position == at(3)),
        "{event:?}"
    );
    assert!(store.left.lock().is_empty());
}

#[tokio::test(start_paused = true)]
async fn one_that_panics_leaves_time_to_who_was_told_and_its_stream_says_so() {
    let (store, engine) = engine_on(ScriptedStore::answering(Ok(granted())));
    let mut hold = engine.hold(request(None)).await.unwrap();
    assert!(matches!(hold.next().await, Some(HoldEvent::Granted(_))));
    store.panic_on_renewals();
    let end = hold.next().await;
    let failed = matches!(
        end,
        Some(HoldEvent::Ended(HoldEnd::Lost(LossReason::Failed)))
    );
    assert!(failed, "{end:?}");
    assert!(hold.next().await.is_none());
    settle().await;
    // Whoever holds it has what is left of its TTL to stop.
    assert!(store.released.lock().is_empty());

    // Before it holds anything, it is not known what has become of it.
    let store = ScriptedStore::queueing();
    let (engine, _lifecycle) = super::scripted_store::engine(&store);
    let mut hold = engine.hold(waiting_request(None)).await.unwrap();
    assert!(matches!(hold.next().await, Some(HoldEvent::Queued(_))));
    store.panic_on_renewals();
    store.tell(News::Granted(held()));
    let end = hold.next().await;
    assert!(
        matches!(end, Some(HoldEvent::Ended(HoldEnd::Refused(_)))),
        "{end:?}"
    );
    settle().await;
    assert_eq!(store.released.lock().len(), 1);
}
