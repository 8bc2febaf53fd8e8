//! Changes of the store that an operator wants to know of: another master, a restart, an outage. The gateway notices
//! them in the figures of its store, keeps them among its incidents, and tells listeners to events.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::SystemTime,
};

use tokio::time::Instant;

use crate::{
    telemetry::metrics::{ServerFigures, StoreFigures},
    with_all::with_all,
};

/// A change of the store, as one gateway has noticed it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreChange {
    /// What has changed.
    pub kind: StoreChangeKind,
    /// The change and what it means for locks, with the addresses of servers.
    pub text: String,
    /// When the gateway noticed the change, by its clock. For display only.
    pub at: SystemTime,
}

with_all! {
    /// The kind of a change of the store.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum StoreChangeKind {
        /// Another server is the master, or has the slots of a master of a cluster.
        FailedOver => "failed-over",
        /// The address leads to another server, or slots of a cluster have moved.
        Moved => "moved",
        /// A server was started again.
        Restarted => "restarted",
        /// The store, or a part of it, does not answer.
        Away => "away",
        /// The store answers again.
        Back => "back",
    }
}

/// Notices changes: compares the figures of the store with the last ones.
#[derive(Debug, Default)]
pub(super) struct StoreObserver {
    /// The addresses of the servers when they were the same twice in a row; empty before that. While a server takes
    /// over, an answer may name the old server, the new server, or both.
    servers: BTreeSet<String>,
    seen: BTreeSet<String>,
    /// How often each server was started again, and how often its address led to another server.
    runs: BTreeMap<String, (u64, u64)>,
    /// Whether the store has been complete since the gateway was started. Before that an outage is no change.
    was_up: bool,
    /// Since when the store is away, and which servers do not answer.
    away: Option<(Instant, String)>,
}

/// What a change of the master means for locks: replicas get writes a moment later, unless the gateway waits for them.
const FORGOTTEN: &str = "grants of the last second may be forgotten";
const WAITED: &str = "unless redis.wait_replicas is the number of replicas";

// === impl StoreObserver ===

impl StoreObserver {
    /// The changes since the last call.
    pub(super) fn observe(
        &mut self,
        figures: &StoreFigures,
        now: Instant,
    ) -> Vec<(StoreChangeKind, String)> {
        let restarts = figures.servers.iter().filter_map(|it| self.restart(it));
        let mut changes: Vec<_> = restarts.collect();
        changes.extend(self.replacement(figures));
        changes.extend(self.outage(figures, now));
        changes
    }

    fn restart(&mut self, server: &ServerFigures) -> Option<(StoreChangeKind, String)> {
        let (node, now) = (&server.node, (server.restarts, server.moves));
        let before = self.runs.insert(node.clone(), now)?;
        if now.1 > before.1 {
            let text = format!(
                "{node} leads to another server than before, which knows no lock of the previous one"
            );
            return Some((StoreChangeKind::Moved, text));
        }
        let text =
            format!("{node} was started again; locks that were not on its disk are forgotten");
        (now.0 > before.0).then_some((StoreChangeKind::Restarted, text))
    }

    fn replacement(&mut self, figures: &StoreFigures) -> Option<(StoreChangeKind, String)> {
        let seen = figures.servers.iter().map(|it| it.node.clone()).collect();
        let is_stable = std::mem::replace(&mut self.seen, seen) == self.seen;
        // Without a master no server is seen.
        if !is_stable || self.seen.is_empty() || self.seen == self.servers {
            return None;
        }
        let before = std::mem::replace(&mut self.servers, self.seen.clone());
        self.runs.retain(|node, _| self.seen.contains(node));
        if before.is_empty() {
            return None;
        }
        let [gone, come] = [(&before, &self.seen), (&self.seen, &before)].map(|(these, those)| {
            let names: Vec<_> = these.difference(those).cloned().collect();
            names.join(", ")
        });
        Some(match (&*gone, &*come) {
            (gone, "") => (
                StoreChangeKind::Moved,
                format!("{gone} has no slots of the cluster any more"),
            ),
            ("", come) => (
                StoreChangeKind::Moved,
                format!("{come} has slots of the cluster"),
            ),
            (gone, come) => {
                let unless = figures.replicas.map(|_| format!(" {WAITED}"));
                let unless = unless.unwrap_or_default();
                let text = format!("master moved from {gone} to {come}; {FORGOTTEN}{unless}");
                (StoreChangeKind::FailedOver, text)
            }
        })
    }

    fn outage(
        &mut self,
        figures: &StoreFigures,
        now: Instant,
    ) -> Option<(StoreChangeKind, String)> {
        let all = figures.servers.len();
        let down = figures.servers.iter().filter(|it| !it.is_up);
        let down: Vec<_> = down.map(|it| &*it.node).collect();
        // A quorum answers as long as a majority of its nodes does.
        let is_up = if figures.nodes.is_empty() {
            down.is_empty() && all > 0
        } else {
            all - down.len() > all / 2
        };
        if is_up {
            self.was_up = true;
            let (since, names) = self.away.take()?;
            let lasted = now.saturating_duration_since(since).as_secs();
            let text = format!("{names} available again after {lasted} s");
            return Some((StoreChangeKind::Back, text));
        }
        if !self.was_up || self.away.is_some() {
            return None;
        }
        let names = if down.is_empty() {
            "master".to_owned()
        } else {
            down.join(", ")
        };
        let text = format!("{names} unavailable");
        self.away = Some((now, names));
        Some((StoreChangeKind::Away, text))
    }
}

#[cfg(test)]
mod tests {
    use crate::telemetry::metrics::NodeFigures;

    use super::*;

    fn server(node: &str, is_up: bool) -> ServerFigures {
        ServerFigures {
            node: node.to_owned(),
            is_up,
            ..ServerFigures::default()
        }
    }

    fn figures(servers: &[(&str, bool)]) -> StoreFigures {
        StoreFigures {
            servers: servers
                .iter()
                .map(|(node, is_up)| server(node, *is_up))
                .collect(),
            ..StoreFigures::default()
        }
    }

    /// The changes when the store has these servers, looked at twice.
    fn observe(observer: &mut StoreObserver, figures: &StoreFigures) -> Vec<String> {
        let mut changes = observer.observe(figures, Instant::now());
        changes.extend(observer.observe(figures, Instant::now()));
        let text = |(kind, text): (StoreChangeKind, String)| format!("{}: {text}", kind.as_str());
        changes.into_iter().map(text).collect()
    }

    #[test]
    fn a_failover_is_an_outage_another_master_and_its_end() {
        let mut observer = StoreObserver::default();
        let mut seen = |servers: &[(&str, bool)]| observe(&mut observer, &figures(servers));
        // The gateway starts before its store: that is no change.
        for start in [&[][..], &[("a:1", false)], &[("a:1", true)]] {
            assert_eq!(seen(start), [""; 0]);
        }
        assert_eq!(seen(&[("a:1", false)]), ["away: a:1 unavailable"]);
        assert_eq!(seen(&[]), [""; 0]);
        assert_eq!(
            seen(&[("b:1", true)]),
            [
                "back: a:1 available again after 0 s",
                "failed-over: master moved from a:1 to b:1; grants of the last second may be forgotten",
            ]
        );
        assert_eq!(seen(&[]), ["away: master unavailable"]);
        assert_eq!(
            seen(&[("b:1", true)]),
            ["back: master available again after 0 s"]
        );
    }

    #[test]
    fn slots_that_move_to_a_new_server_are_no_failover() {
        let mut observer = StoreObserver::default();
        let mut seen = |servers: &[(&str, bool)]| observe(&mut observer, &figures(servers));
        assert_eq!(seen(&[("a:1", true), ("b:1", true)]), [""; 0]);
        let three = [("a:1", true), ("b:1", true), ("c:1", true)];
        assert_eq!(seen(&three), ["moved: c:1 has slots of the cluster"]);
        assert_eq!(
            seen(&three[1..]),
            ["moved: a:1 has no slots of the cluster any more"]
        );
        assert_eq!(
            seen(&[("b:1", false), ("c:1", true)]),
            ["away: b:1 unavailable"]
        );
    }

    #[test]
    fn a_restart_is_told_once_and_a_quorum_is_up_with_most_of_its_nodes() {
        let mut observer = StoreObserver::default();
        let of = |restarts, moves| StoreFigures {
            servers: vec![ServerFigures {
                restarts,
                moves,
                ..server("a:1", true)
            }],
            ..StoreFigures::default()
        };
        assert_eq!(observe(&mut observer, &of(7, 1)), [""; 0]);
        let restarted =
            "restarted: a:1 was started again; locks that were not on its disk are forgotten";
        assert_eq!(observe(&mut observer, &of(8, 1)), [restarted]);
        assert_eq!(observe(&mut observer, &of(8, 2)).len(), 1);

        let mut observer = StoreObserver::default();
        let mut quorum = |up: usize| {
            let nodes = ["a", "b", "c"].into_iter().enumerate();
            let figures = StoreFigures {
                servers: nodes.map(|(n, node)| server(node, n < up)).collect(),
                nodes: vec![NodeFigures::default(); 3],
                ..StoreFigures::default()
            };
            observe(&mut observer, &figures)
        };
        assert_eq!((quorum(3), quorum(2)), (vec![], vec![]));
        assert_eq!(quorum(1), ["away: b, c unavailable"]);
        assert_eq!(quorum(2), ["back: b, c available again after 0 s"]);
    }
}
