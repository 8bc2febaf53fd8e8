//! A gateway that is killed, or stands still, in the middle of a request to the nodes of a quorum, and
//! another one beside it.

use futures_util::future::join_all;

use super::victim::{OF_LOCK, Pair, Point};
use crate::support::Fault;

/// What the scripts are given in the second round of an acquire, and in no other: the counter, and what the
/// node has learnt behind it.
const SECOND_ROUND: &str = "}:fence\r\n$10\r\nlg:{}:node\r\n";

/// Before a majority has carried it out, and after all have.
const POINTS: [Point; 2] = [
    Point {
        needle: OF_LOCK,
        fault: Fault::HoldRequest,
        servers: 2,
        accepts: false,
    },
    Point {
        needle: OF_LOCK,
        fault: Fault::HoldReply,
        servers: 3,
        accepts: false,
    },
];

const fn second_round(point: Point) -> Point {
    Point {
        needle: SECOND_ROUND,
        accepts: true,
        ..point
    }
}

/// A quorum and two gateways for each point, all at once: most of the time they wait for a TTL.
async fn at_each<P, F: Future<Output = ()>>(
    points: impl IntoIterator<Item = P>,
    killed: impl Fn(Pair, P) -> F,
) {
    let killed = &killed;
    let points = points.into_iter();
    let all = points.map(|point| async move { killed(Pair::on_a_quorum().await, point).await });
    join_all(all).await;
}

#[tokio::test]
async fn killed_in_either_round_of_its_acquire_it_leaves_nothing_for_longer_than_a_ttl() {
    let points = POINTS.into_iter().chain(POINTS.map(second_round));
    at_each(points, Pair::killed_while_it_acquires).await;
}

#[tokio::test]
async fn killed_when_it_has_answered_it_leaves_the_lease_to_its_holder() {
    let pair = Pair::on_a_quorum().await;
    pair.killed_when_it_has_answered().await;
}

#[tokio::test]
async fn killed_while_it_renews_it_makes_the_lease_last_a_ttl_and_no_longer() {
    at_each(POINTS, Pair::killed_while_it_renews).await;
}

#[tokio::test]
async fn killed_before_or_after_its_release_was_carried_out_it_leaves_the_lock_free() {
    at_each(POINTS, Pair::killed_while_it_releases).await;
}

#[tokio::test]
async fn killed_while_somebody_waits_there_or_before_a_grant_is_accepted_it_is_passed_over() {
    let accepting = POINTS.map(second_round).map(Some);
    let points = std::iter::once(None).chain(accepting);
    at_each(points, Pair::killed_while_one_waits).await;
}

#[tokio::test]
async fn standing_still_between_the_grant_and_its_answer_it_takes_the_lock_from_nobody() {
    let pair = Pair::on_a_quorum().await;
    let point = second_round(POINTS[1]);
    pair.standing_still_while_it_acquires(point).await;
}
