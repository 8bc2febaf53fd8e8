//! The cases: no violation with all guards, and a violation without each of them.

use super::{
    node::{Node, Proposal},
    variant::{Variant, texts},
    walk::{Ends, Walk},
};
use crate::support::{Random, RedisServer, full};

/// Many times more walks than are needed to find the violation of each variant.
const MOST: usize = 6_000;

async fn nodes(server: &RedisServer, count: usize, variant: Variant) -> Vec<Node> {
    let texts = texts(variant);
    let mut nodes = Vec::new();
    for database in 0..count {
        nodes.push(Node::start(server, database, &texts).await);
    }
    nodes
}

/// The first violation in this many walks, and the number of its walk.
async fn walked(
    nodes: &mut [Node],
    variant: Variant,
    ends: Ends,
    walks: usize,
    random: &mut Random,
) -> Option<(usize, String)> {
    for walk in 0..walks {
        let begun = Walk::begin(nodes, variant, ends, random).await;
        if let Some(wrong) = begun.go(random).await {
            return Some((walk, wrong));
        }
    }
    None
}

#[tokio::test]
async fn fences_rise_and_leases_do_not_overlap_in_whatever_order_messages_come() {
    let server = RedisServer::start().await;
    let mut random = Random::seeded();
    let walks = if full() { 4_000 } else { 150 };
    for (count, ends) in [
        (3, Ends::Anything),
        (3, Ends::Nothing),
        (5, Ends::Anything),
        (5, Ends::Nothing),
    ] {
        let mut nodes = nodes(&server, count, Variant::Guarded).await;
        let found = walked(&mut nodes, Variant::Guarded, ends, walks, &mut random).await;
        assert_eq!(found, None, "{count} nodes; {}", random.how_to_repeat());
    }
}

/// Asserts that a violation is found in the protocol without one of its guards.
async fn is_found(variant: Variant, ends: Ends) {
    let server = RedisServer::start().await;
    let mut random = Random::with_seed(1);
    let mut nodes = nodes(&server, 3, variant).await;
    let found = walked(&mut nodes, variant, ends, MOST, &mut random).await;
    assert!(found.is_some(), "{variant:?} is not found");
}

#[tokio::test]
async fn without_a_second_round_or_with_half_of_the_nodes_something_wrong_is_found() {
    is_found(Variant::NoSecondRound, Ends::Anything).await;
    is_found(Variant::Half, Ends::Nothing).await;
}

#[tokio::test]
async fn with_the_guard_of_the_counter_alone_something_wrong_is_found() {
    is_found(Variant::CounterAlone, Ends::Anything).await;
}

#[tokio::test]
async fn with_votes_of_nodes_that_have_not_learnt_something_wrong_is_found() {
    is_found(Variant::VotesUnlearnt, Ends::Anything).await;
}

/// A schedule that the model has found, and that chance would hardly find: a message of the first round arrives so late
/// that it reserves the lock where the next holder has held it in between.
#[tokio::test]
async fn without_the_guard_of_the_counter_two_are_granted_the_same_fence() {
    let server = RedisServer::start().await;
    for (variant, granted) in [(Variant::Guarded, false), (Variant::OwnerAlone, true)] {
        let mut nodes = nodes(&server, 3, variant).await;
        let base = 5_000_000_000_000_000;
        for (node, counter) in [(0, base + 1), (1, base), (2, base)] {
            nodes[node].reset(counter).await;
        }
        let fence = Some(base + 2);
        let proposed = |it: Option<Proposal>| it.map(|it| it.fence);
        let vote = "1:0";
        // The first attempt asks two nodes, and the one with the lower counter loses its reservation.
        assert_eq!(proposed(nodes[0].reserve(0, "first", "1").await), fence);
        assert_eq!(
            proposed(nodes[1].reserve(0, "first", "1").await),
            Some(base + 1)
        );
        nodes[1].end(0).await;
        // The second attempt is granted the lock by the other two nodes, and its lease soon ends.
        assert_eq!(proposed(nodes[1].reserve(0, "second", "2").await), fence);
        assert_eq!(
            proposed(nodes[2].reserve(0, "second", "2").await),
            Some(base + 1)
        );
        for node in &mut nodes[1..] {
            assert!(node.ratify(0, "second", "2", base + 2, vote).await);
            node.release(0, "second").await;
        }
        // The first attempt goes on at the node that it had not reached.
        assert_eq!(
            proposed(nodes[2].reserve(0, "first", "1").await),
            Some(base + 3)
        );
        assert!(nodes[0].ratify(0, "first", "1", base + 2, vote).await);
        let accepts = nodes[2].ratify(0, "first", "1", base + 2, vote).await;
        assert_eq!(accepts, granted, "{variant:?}");
    }
}

/// The same for a node that catches up: one of the nodes that accept a fencing token loses its data, and learns from
/// the other node just before this one accepts the token.
#[tokio::test]
async fn without_the_guard_of_the_vote_what_a_node_learns_is_out_of_date_and_a_fence_is_granted_twice()
 {
    let server = RedisServer::start().await;
    for (variant, granted) in [(Variant::Guarded, false), (Variant::NoEpoch, true)] {
        let mut nodes = nodes(&server, 3, variant).await;
        let base = 5_000_000_000_000_000;
        for node in &mut nodes {
            node.reset(base).await;
        }
        let fence = base + 1;
        let vote = |it: Option<Proposal>| it.expect("it votes").vote;
        let first = vote(nodes[0].reserve(0, "first", "1").await);
        let other = vote(nodes[1].reserve(0, "first", "1").await);
        assert!(nodes[0].ratify(0, "first", "1", fence, &first).await);
        nodes[0].flush().await;
        assert_eq!(nodes[0].reserve(0, "second", "2").await, None);
        let life = nodes[0].learn("2").await.expect("it has to learn");
        let mut tops = Vec::new();
        for node in &mut nodes[1..] {
            tops.push(node.teach(&life).await.expect("it knows"));
        }
        let accepts = nodes[1].ratify(0, "first", "1", fence, &other).await;
        assert_eq!(accepts, granted, "{variant:?}");
        // The learned counter is behind the fencing token that the first attempt would have been granted.
        let top = *tops.iter().max().unwrap();
        assert!(top < fence);
        nodes[0].admit(&life, top).await;
        assert!(nodes[0].reserve(0, "second", "2").await.is_some());
    }
}
