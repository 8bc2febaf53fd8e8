//! The nodes of a quorum: asks all of them at once, and counts what they have answered.

use std::time::Duration;

use tokio::time::Instant;

use crate::store::contract::Loss;

use super::{super::client::ask_many::ask_many, node::Node};

/// The nodes of a quorum.
pub(super) struct Quorum {
    nodes: Box<[Node]>,
}

/// For how long at least those are waited for that have not answered when enough have.
const LINGER: Duration = Duration::from_millis(5);
/// For how long at most.
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
    /// a few milliseconds at least; then nobody waits for them any more. What they were sent may still be
    /// carried out.
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

    /// The same of some of them.
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
        let asked = self.nodes.iter().filter(|node| whom(node));
        let questions = asked.map(|node| {
            let answer = question(node);
            async move { (node.index, answer.await) }
        });
        let mut answers = NodeReplies::none(self.nodes.len());
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
// What the answers of single nodes amount to, where it is the same for several operations.

/// How a lease was lost, if a majority of the nodes does not have it.
pub(super) fn loss(losses: &[Loss], majority: usize) -> Option<Loss> {
    if losses.len() < majority {
        return None;
    }
    let held = losses.iter().filter(|loss| is_held(**loss));
    // Fewer are those who only try.
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

/// Whether [`loss`] says the same whatever the nodes answer that have not.
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
// What the nodes of a quorum have answered.

/// The answers of the nodes, by their index; `None` where there is none (yet), or none was asked for.
#[derive(Debug)]
pub(super) struct NodeReplies<T> {
    by_node: Vec<Option<T>>,
}

// === impl NodeReplies ===

impl<T> NodeReplies<T> {
    pub(super) fn none(nodes: usize) -> Self {
        let by_node = std::iter::repeat_with(|| None).take(nodes).collect();
        Self { by_node }
    }

    pub(super) fn put(&mut self, node: usize, answer: T) {
        self.by_node[node] = Some(answer);
    }

    /// How many nodes there are.
    pub(super) fn nodes(&self) -> usize {
        self.by_node.len()
    }

    /// What the nodes have answered that did.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.by_node.iter().flatten()
    }

    /// The same, by node.
    pub(super) fn by_node(&self) -> impl Iterator<Item = (usize, Option<&T>)> {
        self.by_node.iter().map(Option::as_ref).enumerate()
    }

    /// How many have answered so.
    pub(super) fn count(&self, so: impl Fn(&T) -> bool) -> usize {
        self.iter().filter(|answer| so(answer)).count()
    }

    /// The nodes that have not answered so.
    pub(super) fn others(&self, so: impl Fn(&T) -> bool) -> Vec<usize> {
        let others = self
            .by_node()
            .filter(|(_, answer)| !answer.is_some_and(&so));
        others.map(|(node, _)| node).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
