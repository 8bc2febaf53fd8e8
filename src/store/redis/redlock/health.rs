//! Readiness checks and metrics of a quorum, whose promises hold as long as a majority of its nodes works.

use std::{sync::atomic::Ordering, time::Duration};

use futures_util::future::join_all;
use tokio::time::timeout;
use tracing::{info, warn};

use crate::{
    store::contract::{Check, Health},
    telemetry::metrics::{NodeFigures, StoreFigures},
};

use super::{
    node::{Node, VoteRefusal},
    shared::Shared,
};

/// How long a node may take to answer a readiness check, so that one slow node does not delay the checks of all nodes.
const CHECK_TIMEOUT: Duration = Duration::from_millis(500);

// === impl Shared ===

impl Shared {
    /// Readiness checks of the quorum: each check combined over all nodes, and whether a majority of the nodes votes.
    pub(super) async fn check(&self) -> Vec<Check> {
        let nodes = self.quorum.nodes();
        let (found, refusals) = tokio::join!(
            join_all(nodes.iter().map(checked)),
            join_all(
                nodes
                    .iter()
                    .map(|node| timeout(CHECK_TIMEOUT, node.vote_refusal()))
            )
        );
        let mut checks = Vec::new();
        for name in ["connection", "permissions", "eviction", "clock"] {
            let of_name = |checks: &Vec<Check>| {
                let check = checks.iter().find(|check| check.name == name);
                check.map(|check| check.health.clone())
            };
            let healths: Vec<_> = nodes.iter().zip(found.iter().map(of_name)).collect();
            checks.push(combined(name, &healths, self.quorum.majority()));
        }
        let mut lefts = Vec::new();
        let votes = nodes.iter().zip(refusals).map(|(node, refusal)| {
            let (health, left) = match refusal {
                Ok(Ok(None)) => (Some(Health::Passing), Some(Duration::ZERO)),
                Ok(Ok(Some(VoteRefusal { why, left }))) => (Some(Health::Outage(why)), left),
                Ok(Err(_)) | Err(_) => (None, None),
            };
            lefts.extend(left);
            (node, health)
        });
        let majority = self.quorum.majority();
        let votes = combined("votes", &votes.collect::<Vec<_>>(), majority);
        checks.push(Check {
            refuses_for: time_until_majority(lefts, majority),
            ..votes
        });
        checks
    }

    /// Logs once when fewer than a majority of the nodes vote, and once when a majority votes again. `had`: whether
    /// there was a majority; `None` before each node was examined once.
    pub(super) fn log_majority(&self, had: &mut Option<bool>) {
        let nodes = self.quorum.nodes();
        if nodes
            .iter()
            .any(|node| node.shard.admission.last.lock().is_none())
        {
            return;
        }
        let reached = nodes
            .iter()
            .filter(|node| node.shard.admission.is_reached());
        let (reached, of) = (reached.count(), nodes.len());
        let has = reached >= self.quorum.majority();
        match (had.replace(has), has) {
            (None | Some(true), false) => {
                warn!(
                    reached,
                    of, "the store is unavailable: fewer than a majority of its nodes answer"
                );
            }
            (Some(false), true) => info!(
                reached,
                of, "the store is available again: a majority of its nodes answers"
            ),
            _ => {}
        }
    }

    pub(super) fn figures(&self) -> StoreFigures {
        let nodes = self.quorum.nodes().iter();
        let mut figures = StoreFigures {
            connections: Some(nodes.clone().map(|node| node.shard.pool.open()).sum()),
            servers: nodes
                .clone()
                .filter_map(|node| node.shard.figures())
                .collect(),
            ..StoreFigures::default()
        };
        for node in nodes {
            if let Some(skew) = *node.shard.admission.skew.lock() {
                figures.clock_skew.push((node.name.clone(), skew));
            }
            let count = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
            figures.nodes.push(NodeFigures {
                node: node.name.clone(),
                is_up: node.shard.admission.is_reached(),
                given: count(&node.votes.given),
                refused: count(&node.votes.refused),
                missing: count(&node.votes.missing),
            });
        }
        figures
    }
}

/// Results of the readiness checks of one node.
async fn checked(node: &Node) -> Vec<Check> {
    match timeout(
        CHECK_TIMEOUT,
        node.shard.admission.check(&node.shard, &node.examiner),
    )
    .await
    {
        Ok(checks) => checks,
        Err(_elapsed) => {
            let why = format!("no answer within {} ms", CHECK_TIMEOUT.as_millis());
            vec![Check::new("connection", Health::Outage(why))]
        }
    }
}

/// Time until a majority of the nodes votes, by the nodes whose time is known; `None` if a majority votes already, or
/// too few times are known.
fn time_until_majority(mut lefts: Vec<Duration>, majority: usize) -> Option<Duration> {
    lefts.sort_unstable();
    let left = lefts.get(majority - 1).copied();
    left.filter(|left| !left.is_zero())
}

/// Combines the results of one readiness check at all nodes. Problems are only a warning as long as a majority of the
/// nodes is well.
fn combined(name: &'static str, nodes: &[(&Node, Option<Health>)], majority: usize) -> Check {
    let [mut outages, mut misconfigured, mut warnings] = [const { Vec::new() }; 3];
    for (node, health) in nodes {
        let (of_kind, why) = match health {
            Some(Health::Outage(why)) => (&mut outages, why),
            Some(Health::Misconfigured(why)) => (&mut misconfigured, why),
            Some(Health::Warning(why)) => (&mut warnings, why),
            Some(Health::Passing) | None => continue,
        };
        of_kind.push(format!("{}: {why}", node.name));
    }
    let missing = nodes.iter().filter(|(_, health)| health.is_none()).count();
    let unfit = outages.len() + misconfigured.len() + missing;
    let all = [&misconfigured[..], &outages, &warnings]
        .concat()
        .join("; ");
    let health = if nodes.len() - unfit >= majority {
        if all.is_empty() {
            Health::Passing
        } else {
            Health::Warning(all)
        }
    } else if misconfigured.len() > nodes.len() - majority {
        Health::Misconfigured(all)
    } else if unfit == missing {
        let of = nodes.len();
        Health::Outage(format!("{missing} of {of} nodes do not report this"))
    } else {
        Health::Outage(all)
    };
    let well = nodes.len() - unfit;
    let note = format!("{well} of {} nodes", nodes.len());
    let is_passing = health == Health::Passing;
    Check {
        note: is_passing.then_some(note),
        ..Check::new(name, health)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quorum_refuses_until_the_node_votes_that_makes_the_majority() {
        let until = |lefts: &[u64]| {
            let lefts = lefts.iter().copied().map(Duration::from_secs).collect();
            time_until_majority(lefts, 2).map(|left| left.as_secs())
        };
        assert_eq!(until(&[12, 0, 7]), Some(7));
        assert_eq!(until(&[12, 9]), Some(12), "nobody knows of the third");
        assert_eq!(until(&[0, 0, 12]), None, "a majority votes");
        assert_eq!(until(&[12]), None, "nobody knows of two");
    }
}
