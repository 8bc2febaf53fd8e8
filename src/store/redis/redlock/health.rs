//! What readiness and the metrics say of a quorum: its promises hold as long as a majority is well.

use std::{sync::atomic::Ordering, time::Duration};

use futures_util::future::join_all;
use tokio::time::timeout;

use crate::{
    store::contract::{Check, Health},
    telemetry::metrics::{NodeFigures, StoreFigures},
};

use super::{node::Node, shared::Shared};

/// How long a node may take to say how it is: whoever asks for all of them does not wait for one.
const SOON: Duration = Duration::from_millis(500);

// === impl Shared ===

impl Shared {
    /// What was found at the nodes: of each check the worst, and whether there is a majority.
    pub(super) async fn check(&self) -> Vec<Check> {
        let nodes = self.quorum.nodes();
        let (found, refusals) = tokio::join!(
            join_all(nodes.iter().map(checked)),
            join_all(nodes.iter().map(|node| timeout(SOON, node.vote_refusal())))
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
        let votes = nodes.iter().zip(&refusals).map(|(node, refusal)| {
            let health = match refusal {
                Ok(Ok(None)) => Some(Health::Passing),
                Ok(Ok(Some(why))) => Some(Health::Outage(why.clone())),
                Ok(Err(_)) | Err(_) => None,
            };
            (node, health)
        });
        checks.push(combined(
            "votes",
            &votes.collect::<Vec<_>>(),
            self.quorum.majority(),
        ));
        checks
    }

    pub(super) fn figures(&self) -> StoreFigures {
        let nodes = self.quorum.nodes().iter();
        let mut figures = StoreFigures {
            connections: Some(nodes.clone().map(|node| node.pool().open()).sum()),
            ..StoreFigures::default()
        };
        for node in nodes {
            if let Some(skew) = node.shard.admission.clock_skew() {
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

/// What was found at one node.
async fn checked(node: &Node) -> Vec<Check> {
    match timeout(
        SOON,
        node.shard.admission.check(&node.shard, &node.examiner),
    )
    .await
    {
        Ok(checks) => checks,
        Err(_elapsed) => vec![Check {
            name: "connection",
            health: Health::Outage(format!("no answer within {} ms", SOON.as_millis())),
            note: None,
        }],
    }
}

/// One check of all nodes. What is wrong at fewer than would cost the majority only wants a look.
fn combined(name: &'static str, nodes: &[(&Node, Option<Health>)], majority: usize) -> Check {
    let names = |what: &dyn Fn(&Health) -> Option<&String>| {
        let wrong = nodes.iter().filter_map(|(node, health)| {
            let why = health.as_ref().and_then(what)?;
            Some(format!("{}: {why}", node.name))
        });
        wrong.collect::<Vec<_>>()
    };
    let outages = names(&|health| match health {
        Health::Outage(why) => Some(why),
        _ => None,
    });
    let misconfigured = names(&|health| match health {
        Health::Misconfigured(why) => Some(why),
        _ => None,
    });
    let warnings = names(&|health| match health {
        Health::Warning(why) => Some(why),
        _ => None,
    });
    let missing = nodes.iter().filter(|(_, health)| health.is_none()).count();
    let unfit = outages.len() + misconfigured.len() + missing;
    let all = || {
        [&misconfigured[..], &outages, &warnings]
            .concat()
            .join("; ")
    };
    let health = if nodes.len() - unfit >= majority {
        match all() {
            all if all.is_empty() => Health::Passing,
            all => Health::Warning(all),
        }
    } else if misconfigured.len() > nodes.len() - majority {
        Health::Misconfigured(all())
    } else if unfit == missing {
        let of = nodes.len();
        Health::Outage(format!("{missing} of {of} nodes do not say"))
    } else {
        Health::Outage(all())
    };
    let well = nodes.len() - unfit;
    let note = format!("{well} of {} nodes", nodes.len());
    let is_passing = health == Health::Passing;
    Check {
        name,
        health,
        note: is_passing.then_some(note),
    }
}
