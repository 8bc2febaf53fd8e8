//! A gateway that is killed, or stands still, in the middle of a request: on a Redis, and another one beside
//! it.

use super::victim::{OF_LOCK, Pair, Point};
use crate::support::Fault;

/// Before it is carried out, and after.
const POINTS: [Point; 2] = [at(Fault::HoldRequest), at(Fault::HoldReply)];

const fn at(fault: Fault) -> Point {
    Point {
        needle: OF_LOCK,
        fault,
        servers: 1,
        accepts: true,
    }
}

#[tokio::test]
async fn killed_before_or_after_its_acquire_was_carried_out_it_leaves_nothing_for_longer_than_a_ttl()
 {
    for point in POINTS {
        Pair::on_redis().await.killed_while_it_acquires(point).await;
    }
}

#[tokio::test]
async fn killed_when_it_has_answered_it_leaves_the_lease_to_its_holder() {
    Pair::on_redis().await.killed_when_it_has_answered().await;
}

#[tokio::test]
async fn killed_while_it_renews_it_makes_the_lease_last_a_ttl_and_no_longer() {
    for point in POINTS {
        Pair::on_redis().await.killed_while_it_renews(point).await;
    }
}

#[tokio::test]
async fn killed_before_or_after_its_release_was_carried_out_it_leaves_the_lock_free() {
    for point in POINTS {
        Pair::on_redis().await.killed_while_it_releases(point).await;
    }
}

#[tokio::test]
async fn killed_while_somebody_waits_there_or_before_it_confirms_a_grant_it_is_passed_over() {
    // Whatever it asks for next of this lock, it does not come to confirm.
    for point in [None, Some(at(Fault::HoldRequest))] {
        Pair::on_redis().await.killed_while_one_waits(point).await;
    }
}

#[tokio::test]
async fn standing_still_between_the_grant_and_its_answer_it_takes_the_lock_from_nobody() {
    let pair = Pair::on_redis().await;
    pair.standing_still_while_it_acquires(at(Fault::HoldReply))
        .await;
}
