//! Leases that are over before a round sees them, while the next waits at another gateway.

use std::time::Duration;

use latchgate::{
    engine::AcquireRequest,
    store::{Store, contract::Confirmation, parking::News},
};
use tokio::time::{Instant, sleep};

use super::{
    super::rig::{assert_most_precede_rounds, attempt, eventually, ttl},
    gate::{PendingAcquire, TestGateway, keep, request, subscribers, waiting},
};
use crate::support::RedisServer;

const SHORT: Duration = Duration::from_millis(300);
/// They are held for short one after the other. If the end of one is found by a round, the next begins right after that
/// round, and so its end is found late by most of a period again.
const LOCKS: [&str; 7] = ["a", "b", "c", "d", "e", "f", "g"];

/// Keeps a lease for short and never releases it.
fn brief(lock: &str) -> AcquireRequest {
    AcquireRequest {
        ttl: ttl(u64::try_from(SHORT.as_millis()).unwrap()),
        ..request(lock)
    }
}

/// How long after the end of a short lease that began then, or a little before, the next was granted the lock.
async fn lateness(began: Instant, next: PendingAcquire) -> Duration {
    let (at, outcome) = next.outcome().await;
    keep(outcome);
    at.saturating_duration_since(began + SHORT)
}

/// The holder is answered, and dies with the gateway that answered it.
async fn begins(holder: PendingAcquire, there: &TestGateway) -> Instant {
    let (began, outcome) = holder.outcome().await;
    keep(outcome);
    there.kill().await;
    began
}

/// Through which gateway a lock is handed over to a waiter of another one.
enum Through {
    /// That at which the next waits.
    Here,
    /// That of the waiter.
    There,
    /// A third one.
    Third,
}

async fn handed_over(through: &Through) -> Vec<Duration> {
    let server = RedisServer::start().await;
    let (here, third) = (
        TestGateway::on(&server).await,
        TestGateway::on(&server).await,
    );
    let mut late = Vec::new();
    for lock in LOCKS {
        let there = TestGateway::on(&server).await;
        let lease = there.take(lock).await;
        let holder = there.queue(brief(lock)).await;
        let next = here.queue(request(lock)).await;
        let gate = match *through {
            Through::Here => &here,
            Through::There => &there,
            Through::Third => &third,
        };
        gate.release(&lease).await;
        late.push(lateness(begins(holder, &there).await, next).await);
    }
    late
}

#[tokio::test]
async fn the_end_is_noticed_of_one_that_was_handed_over_from_here() {
    assert_most_precede_rounds(handed_over(&Through::Here).await);
}

#[tokio::test]
async fn the_end_is_noticed_of_one_that_was_handed_over_by_a_reply_elsewhere() {
    assert_most_precede_rounds(handed_over(&Through::There).await);
}

#[tokio::test]
async fn the_end_is_noticed_of_one_that_was_handed_over_by_a_message_elsewhere() {
    assert_most_precede_rounds(handed_over(&Through::Third).await);
}

#[tokio::test]
async fn the_end_is_noticed_although_the_first_behind_it_is_dead() {
    assert_most_precede_rounds(behind_whom_is_a_dead_one().await);
}

async fn behind_whom_is_a_dead_one() -> Vec<Duration> {
    let server = RedisServer::start().await;
    let (here, doomed) = (
        TestGateway::on(&server).await,
        TestGateway::on(&server).await,
    );
    let mut queues = Vec::new();
    for lock in LOCKS {
        let there = TestGateway::on(&server).await;
        let lease = there.take(lock).await;
        let holder = there.queue(brief(lock)).await;
        let dead = doomed.queue(request(lock)).await;
        let next = here.queue(request(lock)).await;
        queues.push((there, lease, holder, dead, next));
    }
    doomed.kill().await;
    eventually("it hears nothing any more", async || {
        (subscribers(&server).await == 1 + LOCKS.len()).then_some(())
    })
    .await;
    let keys = server.keys().await;
    for key in keys.iter().filter(|key| key.contains(":gw:")) {
        let id = key.rsplit(':').next().unwrap();
        let channel = format!("lg:gw:{id}");
        if server.integer(&["PUBLISH", &channel, ""]).await == 0 {
            // It has not been heard of for long.
            server.run(&["DEL", key]).await;
        }
    }
    let mut late = Vec::new();
    for (there, lease, holder, _dead, next) in queues {
        there.release(&lease).await;
        late.push(lateness(begins(holder, &there).await, next).await);
    }
    late
}

/// What has become of the first behind the holder.
enum First {
    /// It stands in the queue, and its ticket was lost.
    LostTicket,
    /// It has left.
    Left,
}

#[tokio::test]
async fn the_end_is_noticed_although_the_first_behind_it_has_no_ticket() {
    assert_most_precede_rounds(behind_the_first(&First::LostTicket).await);
}

#[tokio::test]
async fn the_end_is_noticed_although_the_first_behind_it_has_left() {
    assert_most_precede_rounds(behind_the_first(&First::Left).await);
}

async fn behind_the_first(becomes: &First) -> Vec<Duration> {
    let server = RedisServer::start().await;
    let (here, other) = (
        TestGateway::on(&server).await,
        TestGateway::on(&server).await,
    );
    let mut late = Vec::new();
    for lock in LOCKS {
        let there = TestGateway::on(&server).await;
        let lease = there.take(lock).await;
        let holder = there.queue(brief(lock)).await;
        let mut first = Some(other.queue(request(lock)).await);
        let next = here.queue(request(lock)).await;
        if let First::LostTicket = becomes {
            let id = ["LINDEX", &format!("lg:{{{lock}}}:wait"), "1"];
            let ticket = format!("lg:{{{lock}}}:of:{}", server.text(&id).await);
            assert_eq!(server.integer(&["DEL", &ticket]).await, 1);
        }
        there.release(&lease).await;
        let began = begins(holder, &there).await;
        if let First::Left = becomes {
            first = None;
            here.until_queued(lock, 1).await;
        }
        late.push(lateness(began, next).await);
        drop(first);
    }
    late
}

#[tokio::test]
async fn the_end_is_noticed_of_one_that_was_confirmed_late() {
    assert_most_precede_rounds(confirmed_late().await);
}

async fn confirmed_late() -> Vec<Duration> {
    let server = RedisServer::start().await;
    let [here, there] = [
        TestGateway::on(&server).await,
        TestGateway::on(&server).await,
    ];
    let mut late = Vec::new();
    for lock in LOCKS {
        let lease = here.take(lock).await;
        let mut asked = waiting(attempt(lock));
        asked.ttl = brief(lock).ttl;
        let mut parked = there.store.parking().park(asked.name.clone(), asked.token);
        there.store.acquire(&asked).await.unwrap();
        let next = here.queue(request(lock)).await;
        here.release(&lease).await;
        assert_eq!(parked.news().await, News::GrantedProvisionally);
        // As if the word of the grant had been lost: it is confirmed when a round has found it.
        sleep(3 * SHORT / 2).await;
        let confirmed = there.store.confirm(&asked.name, &asked.token).await;
        assert!(matches!(confirmed, Ok(Confirmation::Confirmed(_))));
        late.push(lateness(Instant::now(), next).await);
    }
    late
}
