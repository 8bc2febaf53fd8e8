//! What is not counted as it happens but looked up when somebody asks.

use std::{
    fmt::{self, Display, Write as _},
    iter,
};

use crate::release;

use super::{Metric, process::Process};

/// What the gateway is like now.
#[derive(Debug, Clone, Default)]
pub struct Figures {
    /// Whether it is about to stop.
    pub is_withdrawn: bool,
    /// What readiness finds: the name of each check, and how bad it is (0 to 3).
    pub checks: Vec<(&'static str, u8)>,
    /// Requests that stand in a queue.
    pub waiters: usize,
    /// Streams that hold a lock.
    pub held_streams: usize,
    /// Who listens to events.
    pub event_streams: usize,
    /// Leases that live, as far as is known here, and count at no other gateway.
    pub leases: usize,
    /// How many of those share their lock.
    pub shared_leases: usize,
    /// When the certificate of the gateway ends, in seconds since 1970; `None` without TLS.
    pub certificate_ends: Option<u64>,
    /// What the store is like.
    pub store: StoreFigures,
}

/// What a store is like now. A store leaves out what it does not have.
#[derive(Debug, Clone, Default)]
pub struct StoreFigures {
    /// How many connections are open.
    pub connections: Option<u32>,
    /// Whether messages of other gateways arrive.
    pub hears: Option<bool>,
    /// How many messages to other gateways could not be sent.
    pub unsent_messages: Option<u64>,
    /// By how many seconds the clock of each node is ahead of ours.
    pub clock_skew: Vec<(String, f64)>,
    /// The node that is the master, and since when it is followed, in seconds since 1970.
    pub master: Option<(String, f64)>,
    /// How often another node became the master.
    pub master_changes: Option<u64>,
    /// Whether each sentinel answers.
    pub sentinels: Vec<(String, bool)>,
    /// Whether each master of a cluster can be reached.
    pub masters: Vec<(String, bool)>,
    /// How many replicas had what was last waited for.
    pub replicas: Option<u32>,
    /// The nodes of a quorum.
    pub nodes: Vec<NodeFigures>,
}

/// What a node of a quorum is like now.
#[derive(Debug, Clone, Default)]
pub struct NodeFigures {
    /// Where it is.
    pub node: String,
    /// Whether it answers.
    pub is_up: bool,
    /// How often it has given its vote.
    pub given: u64,
    /// How often it has refused it, because the lock was held.
    pub refused: u64,
    /// How often it had none: it did not answer in time, or may not vote yet.
    pub missing: u64,
}

// === impl Figures ===

impl Figures {
    /// Writes the figures, and those of this process, as Prometheus scrapes them.
    pub(super) fn write_to(&self, text: &mut String) {
        let build = [release::VERSION, release::COMMIT];
        write(text, "latchgate_build_info", iter::once((build, 1)));
        let draining = Some(u8::from(self.is_withdrawn));
        write_one(text, "latchgate_draining", draining);
        write_each(text, "latchgate_check", self.checks.iter().copied());
        write_one(text, "latchgate_waiters", Some(self.waiters));
        write_one(text, "latchgate_held_streams", Some(self.held_streams));
        write_one(text, "latchgate_event_streams", Some(self.event_streams));
        write_one(text, "latchgate_leases", Some(self.leases));
        write_one(text, "latchgate_shared_leases", Some(self.shared_leases));
        let name = "latchgate_certificate_expiry_timestamp_seconds";
        write_one(text, name, self.certificate_ends);
        self.store.write_to(text);
        let process = Process::now();
        write_one(text, "process_start_time_seconds", process.started_at);
        write_one(text, "process_cpu_seconds", process.cpu);
        write_one(text, "process_resident_memory_bytes", process.resident);
        write_one(text, "process_open_fds", process.open_files);
        write_one(text, "process_max_fds", process.most_files);
    }
}

// === impl StoreFigures ===

impl StoreFigures {
    fn write_to(&self, text: &mut String) {
        write_one(text, "latchgate_store_connections", self.connections);
        let hears = self.hears.map(u8::from);
        write_one(text, "latchgate_store_channel", hears);
        write_one(
            text,
            "latchgate_store_unsent_messages",
            self.unsent_messages,
        );
        let skew = self.clock_skew.iter().map(|(node, skew)| (&**node, skew));
        write_each(text, "latchgate_store_clock_skew_seconds", skew);
        let master = self.master.iter().map(|(node, since)| (&**node, since));
        write_each(text, "latchgate_store_master_since_seconds", master);
        write_one(text, "latchgate_store_master_changes", self.master_changes);
        let sentinels = self
            .sentinels
            .iter()
            .map(|(node, up)| (&**node, u8::from(*up)));
        write_each(text, "latchgate_store_sentinel", sentinels);
        write_one(text, "latchgate_store_replicas", self.replicas);
        let nodes = |figure: fn(&NodeFigures) -> u64| {
            self.nodes.iter().map(move |it| (&*it.node, figure(it)))
        };
        let masters = self
            .masters
            .iter()
            .map(|(node, up)| (&**node, u64::from(*up)));
        let up = masters.chain(nodes(|it| it.is_up.into()));
        write_each(text, "latchgate_store_node", up);
        write_each(text, "latchgate_store_votes_given", nodes(|it| it.given));
        write_each(
            text,
            "latchgate_store_votes_refused",
            nodes(|it| it.refused),
        );
        write_each(
            text,
            "latchgate_store_votes_missing",
            nodes(|it| it.missing),
        );
    }
}

/// Writes a metric without labels: nothing but its head if there is no figure.
fn write_one(text: &mut String, name: &str, figure: Option<impl Display>) {
    write(text, name, figure.map(|figure| ([], figure)));
}

/// Writes a metric with one label: nothing but its head if there is no value of the label.
fn write_each<'a>(
    text: &mut String,
    name: &str,
    figures: impl IntoIterator<Item = (&'a str, impl Display)>,
) {
    write(
        text,
        name,
        figures.into_iter().map(|(label, figure)| ([label], figure)),
    );
}

fn write<'a, const N: usize>(
    text: &mut String,
    name: &str,
    figures: impl IntoIterator<Item = ([&'a str; N], impl Display)>,
) {
    let metric = Metric::named(name).expect("every metric is in the catalogue");
    let (help, kind) = (metric.help, metric.kind.as_str());
    let mut line = |line: fmt::Arguments<'_>| {
        writeln!(text, "{line}").expect("writing to a String never fails");
    };
    line(format_args!("# HELP {name} {help}"));
    line(format_args!("# TYPE {name} {kind}"));
    let sample = metric.samples().concat();
    for (labels, figure) in figures {
        let labels = metric.labels.iter().zip(labels);
        let labels: Vec<_> = labels
            .map(|(name, value)| format!("{name}={value:?}"))
            .collect();
        let labels = match labels.join(",") {
            none if none.is_empty() => none,
            some => format!("{{{some}}}"),
        };
        line(format_args!("{sample}{labels} {figure}"));
    }
}
