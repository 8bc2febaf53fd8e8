//! A gateway that helps a node without data to catch up.

use super::node::Node;
use crate::support::Random;

/// A gateway that helps a node to catch up.
pub(super) struct Learner {
    node: usize,
    /// The life of the node, once it has begun to catch up.
    life: Option<String>,
    /// A name for the new life.
    new: String,
    /// The replies of the other nodes.
    replies: Vec<TeachReply>,
}

/// The reply of another node.
#[derive(Debug, Clone, PartialEq, Eq)]
enum TeachReply {
    Nothing,
    /// The node must catch up itself.
    Unlearnt,
    /// The highest fencing token that the node knows.
    Top(u64),
}

// === impl Learner ===

impl Learner {
    pub(super) fn new(node: usize, nodes: usize, random: &mut Random) -> Self {
        Self {
            node,
            life: None,
            new: format!("{:x}", random.next()),
            replies: vec![TeachReply::Nothing; nodes],
        }
    }

    /// Asks the next node, in random order. Answers a description of the step, and whether the node has caught up.
    pub(super) async fn step(&mut self, nodes: &mut [Node], random: &mut Random) -> (String, bool) {
        let Self { node, replies, .. } = self;
        let Some(life) = &self.life else {
            self.life = nodes[*node].learn(&self.new).await;
            return (format!("{node} begins to learn"), self.life.is_none());
        };
        let tops = replies.iter().filter_map(|replies| match replies {
            TeachReply::Top(top) => Some(*top),
            TeachReply::Nothing | TeachReply::Unlearnt => None,
        });
        let tops: Vec<u64> = tops.collect();
        if tops.len() > nodes.len() / 2 {
            let top = tops.into_iter().max().expect("there is a majority");
            nodes[*node].admit(life, top).await;
            return (format!("{node} has learnt {top}"), true);
        }
        let other = random.below(nodes.len());
        if other != *node {
            let said = nodes[other].teach(life).await;
            // A reply may be lost.
            if random.below(4) > 0 {
                replies[other] = said.map_or(TeachReply::Unlearnt, TeachReply::Top);
            }
        }
        (
            format!("{node} learns of {other}: {:?}", replies[other]),
            false,
        )
    }
}
