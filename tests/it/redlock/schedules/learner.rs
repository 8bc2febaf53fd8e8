//! Who learns for a node that has lost its data, as a gateway does.

use super::node::Node;
use crate::support::Random;

/// Who learns for a node.
pub(super) struct Learner {
    node: usize,
    /// Its life, when it has begun.
    life: Option<String>,
    /// A name for its life.
    new: String,
    /// What each of the others has said.
    replies: Vec<TeachReply>,
}

/// What one of the others has said.
#[derive(Debug, Clone, PartialEq, Eq)]
enum TeachReply {
    Nothing,
    /// That it has to learn itself.
    Unlearnt,
    /// How far it has come.
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

    /// Asks the next, in any order, and answers what came of it and whether it is over.
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
            // An answer may be lost.
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
