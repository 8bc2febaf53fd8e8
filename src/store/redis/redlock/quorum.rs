//! The nodes of a quorum: asks all of them at once, counts their answers, and pauses between tries.

use std::time::Duration;

use tokio::time::Instant;

use crate::store::{StoreError, Unavailability, contract::Loss};

use super::{super::client::ask_many::ask_many, node::Node};

/// The nodes of a quorum.
pub(super) struct Quorum {
    nodes: Box<[Node]>,
}

/// Shortest time to wait for the other nodes when enough nodes have answered.
const LINGER: Duration = Duration::from_millis(5);
/// Longest time to wait for the other nodes when enough nodes have answered.
const LONGEST_LINGER: Duration = Duration::from_millis(50);

// === impl Quorum ===

impl Quorum {
    pub(super) fn new(nodes: Vec<Node>) -> Self {
        let nodes = nodes.into();
        Self { nodes }
    }

    pub(super) fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// How many nodes are a majority.
    pub(super) fn majority(&self) -> usize {
        self.nodes.len() / 2 + 1
    }

    /// Asks all nodes. When there are enough answers the others have as much time again as those took,
    /// a few milliseconds at least; then the call returns without the missing answers. Commands that were sent may
    /// still be carried out.
    pub(super) async fn ask<'a, T, F>(
        &'a self,
        question: impl Fn(&'a Node) -> F,
        enough: impl Fn(&NodeReplies<T>) -> bool,
    ) -> NodeReplies<T>
    where
        F: Future<Output = T>,
    {
        self.ask_some(|_| true, question, enough).await
    }

    /// Asks some of the nodes, in the same way as `ask`.
    pub(super) async fn ask_some<'a, T, F>(
        &'a self,
        whom: impl Fn(&Node) -> bool,
        question: impl Fn(&'a Node) -> F,
        enough: impl Fn(&NodeReplies<T>) -> bool,
    ) -> NodeReplies<T>
    where
        F: Future<Output = T>,
    {
        let began = Instant::now();
        let asked: Vec<_> = self.nodes.iter().filter(|node| whom(node)).collect();
        let mut answers = NodeReplies {
            asked: asked.len(),
            ..NodeReplies::none(self.nodes.len())
        };
        let questions = asked.into_iter().map(|node| {
            let answer = question(node);
            async move { (node.index, answer.await) }
        });
        let take = |(node, answer)| {
            answers.put(node, answer);
            enough(&answers).then(|| began.elapsed().clamp(LINGER, LONGEST_LINGER))
        };
        ask_many(questions, None, take).await;
        answers
    }
}

// === Combined ===
//
// Combines the answers of single nodes, where several operations do so in the same way.

/// How the lease was lost; `None` unless a majority of the nodes does not have it.
pub(super) fn loss(losses: &[Loss], majority: usize) -> Option<Loss> {
    if losses.len() < majority {
        return None;
    }
    let held = losses.iter().filter(|loss| is_held(**loss));
    // Holders at fewer nodes are only tries.
    let held = held.count() >= majority;
    let broken = losses
        .iter()
        .any(|loss| matches!(loss, Loss::Broken { .. }));
    Some(match (broken, held) {
        (true, held) => Loss::Broken { held },
        (false, true) => Loss::HeldByAnother,
        (false, false) => Loss::Free,
    })
}

/// Whether the missing answers cannot change the result of [`loss`].
pub(super) fn is_decided(losses: &[Loss], majority: usize, nodes: usize) -> bool {
    let held = losses.iter().filter(|loss| is_held(**loss)).count();
    losses.len() >= majority && (held >= majority || held + nodes - losses.len() < majority)
}

fn is_held(loss: Loss) -> bool {
    match loss {
        Loss::HeldByAnother => true,
        Loss::Broken { held } => held,
        Loss::Free => false,
    }
}

// === Node replies ===
//
// The answers of the nodes of a quorum.

/// The answers of the nodes, by their index; `None` for a node that has not answered (yet), or was not asked.
#[derive(Debug)]
pub(super) struct NodeReplies<T> {
    by_node: Vec<Option<T>>,
    asked: usize,
}

// === impl NodeReplies ===

impl<T> NodeReplies<T> {
    pub(super) fn none(nodes: usize) -> Self {
        Self {
            by_node: std::iter::repeat_with(|| None).take(nodes).collect(),
            asked: nodes,
        }
    }

    pub(super) fn put(&mut self, node: usize, answer: T) {
        self.by_node[node] = Some(answer);
    }

    /// The error if a majority is missing: how many of the nodes that were asked have answered, and why another node
    /// has not.
    pub(super) fn too_few_answers(&self, answered: usize, why: Option<&StoreError>) -> StoreError {
        too_few(self.asked, answered, why)
    }

    /// How many nodes the quorum has.
    pub(super) fn nodes(&self) -> usize {
        self.by_node.len()
    }

    /// The answers that have arrived.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.by_node.iter().flatten()
    }

    /// The answer of each node; `None` if it is missing.
    pub(super) fn by_node(&self) -> impl Iterator<Item = (usize, Option<&T>)> {
        self.by_node.iter().map(Option::as_ref).enumerate()
    }

    /// How many answers satisfy the condition.
    pub(super) fn count(&self, so: impl Fn(&T) -> bool) -> usize {
        self.iter().filter(|answer| so(answer)).count()
    }

    /// The nodes whose answer is missing or does not satisfy the condition.
    pub(super) fn others(&self, so: impl Fn(&T) -> bool) -> Vec<usize> {
        let others = self
            .by_node()
            .filter(|(_, answer)| !answer.is_some_and(&so));
        others.map(|(node, _)| node).collect()
    }
}

impl<T> NodeReplies<Result<T, StoreError>> {
    /// The errors among the answers.
    pub(super) fn errors(&self) -> impl Iterator<Item = &StoreError> {
        self.iter().filter_map(|answer| answer.as_ref().err())
    }

    /// How many nodes have not answered, or answered with an error.
    pub(super) fn silent(&self) -> usize {
        self.nodes() - self.count(Result::is_ok)
    }

    /// [`NodeReplies::too_few_answers`], where an error counts as a missing answer.
    pub(super) fn too_few(&self) -> StoreError {
        self.too_few_answers(self.count(Result::is_ok), self.errors().next())
    }
}

/// The error for too few answers of the nodes that were asked; `why` is the reason of a node that has not answered.
pub(super) fn too_few(asked: usize, answered: usize, why: Option<&StoreError>) -> StoreError {
    let why = why.map(|why| format!("; {why}")).unwrap_or_default();
    let text = format!("{answered} of {asked} nodes that were asked have answered{why}");
    Unavailability::TooFewNodes(text).into()
}

// === Backoff ===

/// Pauses of random length, which grow with each try: of the gateways that have split the nodes among themselves, one
/// must come first the next time, and be done before another begins.
#[derive(Debug)]
pub(super) struct Backoff {
    longest: Duration,
}

/// Longest first pause: a few round trips to nodes that are near.
const MAX_FIRST_PAUSE: Duration = Duration::from_millis(4);
/// Longest pause between nodes that are near; where nodes are far away, `DOUBLINGS` allows longer pauses.
const MAX_PAUSE_NEARBY: Duration = Duration::from_millis(128);
/// How many tries fit into the longest pause where the nodes are far away: enough that two gateways seldom meet.
const DOUBLINGS: u32 = 4;

// === impl Backoff ===

impl Backoff {
    pub(super) fn new() -> Self {
        Self {
            longest: MAX_FIRST_PAUSE,
        }
    }

    /// The pause after a try that took this long.
    pub(super) fn next(&mut self, took: Duration) -> Duration {
        up_to(self.range(took))
    }

    /// Longest pause after a try. If it were shorter than a try, it would not keep two gateways apart.
    fn range(&mut self, took: Duration) -> Duration {
        let range = self.longest.max(took);
        self.longest = (2 * range).min(MAX_PAUSE_NEARBY.max(DOUBLINGS * took));
        range
    }
}

/// A random part of a time. If there is no randomness, gateways come together, which is no reason to fail.
pub(super) fn up_to(longest: Duration) -> Duration {
    let share = getrandom::u32().unwrap_or(u32::MAX / 2);
    longest.mul_f64(f64::from(share) / f64::from(u32::MAX))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The answers of a quorum; `None` for a node that has not answered.
    pub(in super::super) fn replies<T, const N: usize>(said: [Option<T>; N]) -> NodeReplies<T> {
        NodeReplies {
            by_node: said.into(),
            asked: N,
        }
    }

    #[test]
    fn a_loss_is_settled_when_no_other_answer_can_change_it() {
        let (free, held) = (Loss::Free, Loss::HeldByAnother);
        assert!(!is_decided(&[free], 2, 3));
        assert!(is_decided(&[free, free], 2, 3));
        assert!(is_decided(&[held, held], 2, 3));
        assert!(!is_decided(&[free, held], 2, 3));
        assert!(is_decided(&[free, held, free], 2, 3));
        assert!(!is_decided(&[free, free, held], 3, 5));
        assert!(is_decided(&[free, free, free], 3, 5));
    }

    #[test]
    fn a_lease_is_lost_where_a_majority_does_not_have_it() {
        let (free, held) = (Loss::Free, Loss::HeldByAnother);
        assert_eq!(loss(&[free], 2), None);
        assert_eq!(loss(&[free, free, held], 2), Some(free));
        assert_eq!(loss(&[free, held, held], 2), Some(held));
        let broken = |held| Loss::Broken { held };
        assert_eq!(loss(&[broken(false), free], 2), Some(broken(false)));
        assert_eq!(loss(&[broken(true), held], 2), Some(broken(true)));
        assert_eq!(loss(&[broken(true), free, free], 2), Some(broken(false)));
    }

    #[test]
    fn a_node_that_was_not_asked_is_not_missing() {
        let replies = NodeReplies::<Result<(), StoreError>> {
            asked: 2,
            ..NodeReplies::none(3)
        };
        let text = replies.too_few().to_string();
        assert!(text.contains("0 of 2 nodes"), "{text}");
    }

    fn ranges(took: u64, count: usize) -> Vec<u128> {
        let mut backoff = Backoff::new();
        let ranges = std::iter::repeat_with(|| backoff.range(Duration::from_millis(took)));
        ranges.take(count).map(|range| range.as_millis()).collect()
    }

    #[test]
    fn pauses_grow_from_a_few_round_trips_to_several_tries() {
        assert_eq!(ranges(0, 7), [4, 8, 16, 32, 64, 128, 128]);
        assert_eq!(ranges(7, 6), [7, 14, 28, 56, 112, 128]);
        assert_eq!(ranges(100, 4), [100, 200, 400, 400]);
    }
}
