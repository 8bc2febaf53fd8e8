//! The nodes together: asks all of them at once, and does not wait for the slowest.

use std::time::Duration;

use futures_util::{StreamExt, stream::FuturesUnordered};
use tokio::time::{Instant, sleep_until};

use super::{node::Node, node_replies::NodeReplies};

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
        let mut asked: FuturesUnordered<_> = asked
            .map(|node| {
                let answer = question(node);
                async move { (node.index, answer.await) }
            })
            .collect();
        let mut answers = NodeReplies::none(self.nodes.len());
        let mut until: Option<Instant> = None;
        loop {
            let late = async {
                match until {
                    Some(until) => sleep_until(until).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                answer = asked.next() => match answer {
                    Some((node, answer)) => answers.put(node, answer),
                    None => return answers,
                },
                () = late => return answers,
            }
            if until.is_none() && enough(&answers) {
                let now = Instant::now();
                let linger = (now - began).clamp(LINGER, LONGEST_LINGER);
                until = Some(now + linger);
            }
        }
    }
}
