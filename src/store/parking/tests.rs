//! Tests of the list of waiters at a gateway.

use super::*;
use crate::lock::Token;

fn named(name: &str) -> LockName {
    LockName::new(name).unwrap()
}

fn place(parking: &Parking, name: &str) -> (Parked, TokenHash) {
    let token = Token::random().hash();
    (parking.park(LockName::new(name).unwrap(), token), token)
}

#[tokio::test]
async fn news_reach_the_attempt_they_are_for_once_and_while_it_waits_for_that_name() {
    let parking = Parking::default();
    let (mut first, _) = place(&parking, "a");
    let (mut second, token) = place(&parking, "a");
    // A group that holds "b" waits for "a" with the same token; late news of "b" must not reach it.
    assert!(!parking.deliver(&named("b"), &token, News::GrantedProvisionally));
    assert_eq!(second.try_news(), None);
    // Only the first news are delivered; later news still find the attempt.
    assert!(parking.deliver(&named("a"), &token, News::Replaced));
    assert!(parking.deliver(&named("a"), &token, News::Forgotten));
    assert_eq!(second.news().await, News::Replaced);
    assert_eq!(first.try_news(), None);
    drop((first, second));
    assert!(!parking.deliver(&named("a"), &token, News::GrantedProvisionally));
    assert!(parking.is_empty());
}

#[tokio::test]
async fn all_who_wait_are_come_by_in_turns() {
    let parking = Parking::default();
    let places: Vec<_> = (0..7).map(|_| place(&parking, "a")).collect();
    let (_told, told) = &places[3];
    assert!(parking.deliver(&named("a"), told, News::Forgotten));
    let (mut seen, mut last) = (Vec::new(), None);
    for expected in [3, 3, 0] {
        let turn = parking.next_waiters(last.as_ref(), 3);
        assert_eq!(turn.len(), expected);
        last = turn.last().map(|(_, token)| *token);
        seen.extend(turn.into_iter().map(|(_, token)| token));
    }
    for (_, token) in &places {
        assert_eq!(seen.contains(token), token != told, "who was told has news");
    }
}

#[tokio::test]
async fn one_who_asks_again_keeps_the_place_and_hears_what_comes_then() {
    let parking = Parking::default();
    let (mut parked, token) = place(&parking, "a");
    assert!(parking.deliver(&named("a"), &token, News::Forgotten));
    assert_eq!(parked.news().await, News::Forgotten);
    parked.rearm();
    assert_eq!(parked.try_news(), None);
    assert!(parking.deliver(&named("a"), &token, News::Replaced));
    assert_eq!(parked.news().await, News::Replaced);
    assert_eq!(parking.len(), 1);
    drop(parked);
    assert!(parking.is_empty());
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_a_name_is_a_crowd_with_the_time_of_its_first() {
    let parking = Parking::default();
    assert_eq!(parking.waiters_by_name(), []);
    let (mut first, token) = place(&parking, "a");
    tokio::time::advance(Duration::from_secs(2)).await;
    let _others = [place(&parking, "a"), place(&parking, "b")];
    // An attempt that asks again has waited since it was first registered.
    assert!(parking.deliver(&named("a"), &token, News::Forgotten));
    first.rearm();
    tokio::time::advance(Duration::from_secs(1)).await;
    let mut crowds = parking.waiters_by_name();
    crowds.sort_by_key(|crowd| crowd.waiters);
    let seen = crowds
        .iter()
        .map(|crowd| (crowd.name.as_str(), crowd.waiters, crowd.longest.as_secs()));
    assert_eq!(seen.collect::<Vec<_>>(), [("b", 1, 1), ("a", 2, 3)]);
}

#[tokio::test]
async fn a_name_is_awaited_until_its_last_place_is_left_and_its_queue_alone_is_forgotten() {
    let parking = Parking::default();
    let (mut first, _) = place(&parking, "a");
    let (second, token) = place(&parking, "a");
    let (mut other, _) = place(&parking, "b");
    parking.notify_forgotten(|name| name.as_str() == "a");
    assert_eq!(first.try_news(), Some(News::Forgotten));
    assert_eq!(other.try_news(), None);
    drop((first, other));
    assert!(parking.has_waiters(&named("a")));
    assert_eq!(parking.waiting_for(&named("a")), [token]);
    assert_eq!(second.name(), &named("a"));
    drop(second);
    assert!(!parking.has_waiters(&named("a")));
    assert!(parking.names().is_empty());
}

#[tokio::test]
async fn a_waiter_that_watches_is_told_its_last_position_and_no_other_waiter() {
    let parking = Parking::default();
    let ((parked, one), (_other, other)) = (place(&parking, "a"), place(&parking, "a"));
    let mut watcher = parking.watch_position(&one);
    let at = |ahead| Position { ahead, waiters: 9 };
    for (token, position) in [(one, at(4)), (one, at(3)), (other, at(1))] {
        parking.publish_position(&token, position);
    }
    watcher.changed().await.unwrap();
    assert_eq!(*watcher.borrow_and_update(), Some(at(3)));
    drop(parked);
    assert!(watcher.changed().await.is_err());
    assert!(parking.watched_by_name().is_empty());
}

#[test]
fn watched_positions_are_come_by_in_turns_and_found_by_their_lock() {
    let parking = Parking::default();
    let places: Vec<_> = (0..10)
        .map(|number| place(&parking, if number < 3 { "a" } else { "b" }))
        .collect();
    let _unwatched = place(&parking, "a");
    let _watchers: Vec<_> = places
        .iter()
        .map(|(_, token)| parking.watch_position(token))
        .collect();
    let mut seen = HashMap::new();
    let mut last = None;
    for _ in 0..10 {
        let turn = parking.next_watched(last.as_ref(), 3);
        assert_eq!(turn.len(), 3);
        last = turn.last().map(|(_, token)| *token);
        for (_, token) in turn {
            *seen.entry(token).or_insert(0) += 1;
        }
    }
    assert!(seen.len() == 10 && seen.values().all(|&times| times == 3));
    assert_eq!(parking.next_watched(last.as_ref(), 100).len(), 10);
    assert_eq!(parking.watched_by_name()[&named("a")].len(), 3);
    drop(places);
    assert!(parking.next_watched(last.as_ref(), 3).is_empty());
}
