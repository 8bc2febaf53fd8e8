//! Figures: metrics whose values are read from the gateway for each scrape, instead of being counted.

use std::{
    fmt::{self, Display, Write as _},
    fs, iter,
    time::Duration,
};

use crate::release;

use super::Metric;

/// The current state of the gateway for a scrape of the metrics.
#[derive(Debug, Clone, Default)]
pub struct Figures {
    /// Whether the gateway is about to stop.
    pub is_withdrawn: bool,
    /// The checks of the gateway's readiness: the name of each check, and how bad its result is (0 to 3).
    pub checks: Vec<(&'static str, u8)>,
    /// The number of waiters at this gateway.
    pub waiters: usize,
    /// The number of open streams that hold a lock.
    pub held_streams: usize,
    /// The number of open streams of events.
    pub event_streams: usize,
    /// The number of leases that this gateway believes are alive, and that no other gateway counts.
    pub leases: usize,
    /// How many of `leases` are shared.
    pub shared_leases: usize,
    /// How long the longest-waiting request at this gateway has waited.
    pub longest_wait: Option<Duration>,
    /// How long the oldest lease that this gateway knows has been held, without reservations.
    pub longest_hold: Option<Duration>,
    /// The number of waiters at this gateway for the lock with the most.
    pub longest_queue: usize,
    /// When the certificate of the gateway expires, in seconds since 1970; `None` without TLS.
    pub certificate_ends: Option<u64>,
    /// The current state of the store.
    pub store: StoreFigures,
}

/// The current state of a store. Figures that a kind of store does not have are `None` or empty.
#[derive(Debug, Clone, Default)]
pub struct StoreFigures {
    /// Each server whose answers the store needs, or the data directory. Not in the metrics.
    pub servers: Vec<ServerFigures>,
    /// The number of open connections.
    pub connections: Option<u32>,
    /// Whether this gateway receives the messages of other gateways.
    pub hears: Option<bool>,
    /// The number of messages to other gateways that could not be sent.
    pub unsent_messages: Option<u64>,
    /// For each node, by how many seconds its clock is ahead of the gateway's clock.
    pub clock_skew: Vec<(String, f64)>,
    /// The node that is the master, and since when the gateway follows it, in seconds since 1970.
    pub master: Option<(String, f64)>,
    /// How often the gateway stopped following a master, mostly because another node became the master.
    pub master_changes: Option<u64>,
    /// For each sentinel, its address and whether it answers.
    pub sentinels: Vec<(String, bool)>,
    /// For each master of a cluster, its address and whether it can be reached.
    pub masters: Vec<(String, bool)>,
    /// The number of replicas that had received a grant, for the last grant for which the gateway waited for replicas.
    pub replicas: Option<u32>,
    /// The current state of each node of a quorum.
    pub nodes: Vec<NodeFigures>,
}

/// The current state of a server of a store.
#[derive(Debug, Clone, Default)]
pub struct ServerFigures {
    /// The address of the server.
    pub node: String,
    /// Whether the server answers.
    pub is_up: bool,
    /// How often connections have reached another run of the server than before.
    pub restarts: u64,
    /// How often the address has led to another server than before.
    pub moves: u64,
}

/// The current state of a node of a quorum.
#[derive(Debug, Clone, Default)]
pub struct NodeFigures {
    /// The address of the node.
    pub node: String,
    /// Whether the node answers.
    pub is_up: bool,
    /// How often the node voted for an acquire.
    pub given: u64,
    /// How often the node refused its vote to an acquire, because the lock was held at the node.
    pub refused: u64,
    /// How often the node gave no vote: it did not answer in time, or may not vote yet after its start.
    pub missing: u64,
}

// === impl Figures ===

impl Figures {
    /// Writes these figures, and the figures of the process, in the text format of Prometheus.
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
        let seconds = |span: Option<Duration>| Some(span.unwrap_or_default().as_secs_f64());
        let (wait, hold) = (seconds(self.longest_wait), seconds(self.longest_hold));
        write_one(text, "latchgate_longest_wait_seconds", wait);
        write_one(text, "latchgate_longest_hold_seconds", hold);
        write_one(text, "latchgate_longest_queue", Some(self.longest_queue));
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

/// Writes a metric without labels. Without a figure, writes only the head of the metric: its help text and type.
fn write_one(text: &mut String, name: &str, figure: Option<impl Display>) {
    write(text, name, figure.map(|figure| ([], figure)));
}

/// Writes a metric with one label. Without figures, writes only the head of the metric: its help text and type.
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

// === Process ===
//
// Figures of this process from the operating system.

/// The figures of this process; `None` on systems other than Linux.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Process {
    started_at: Option<f64>,
    cpu: Option<f64>,
    resident: Option<u64>,
    open_files: Option<u64>,
    most_files: Option<u64>,
}

// === impl Process ===

impl Process {
    /// Reads the current figures of this process from `/proc`.
    fn now() -> Self {
        let ticks =
            f64::from(u32::try_from(rustix::param::clock_ticks_per_second()).unwrap_or(100));
        let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        // The fields begin after the last parenthesis: the program's name, in parentheses, may contain any text.
        let fields = stat
            .rsplit_once(") ")
            .map(|(_, rest)| rest.split_ascii_whitespace().collect::<Vec<_>>())
            .unwrap_or_default();
        // Fields have the numbers of proc(5), where the first two fields, now cut off, are numbers 1 and 2.
        let field = |number: usize| fields.get(number - 3)?.parse::<f64>().ok();
        let boot = fs::read_to_string("/proc/stat").ok().and_then(|stat| {
            let line = stat.lines().find_map(|line| line.strip_prefix("btime "))?;
            line.trim().parse::<f64>().ok()
        });
        let page = u64::try_from(rustix::param::page_size()).unwrap_or(4096);
        let resident = fs::read_to_string("/proc/self/statm").ok();
        let resident = resident
            .and_then(|statm| statm.split_ascii_whitespace().nth(1)?.parse::<u64>().ok())
            .map(|pages| pages * page);
        let open = fs::read_dir("/proc/self/fd").ok();
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        Self {
            started_at: boot
                .zip(field(22))
                .map(|(boot, began)| boot + began / ticks),
            cpu: field(14)
                .zip(field(15))
                .map(|(user, kernel)| (user + kernel) / ticks),
            resident,
            // The descriptor that reads the directory is open too, and is not counted.
            open_files: open.map(|open| (open.count() as u64).saturating_sub(1)),
            most_files: limit.current,
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod process_tests {
    use super::*;

    #[test]
    fn linux_tells_everything_of_a_process() {
        let process = Process::now();
        let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
        let age = now.as_secs_f64() - process.started_at.unwrap();
        assert!((-1.0..86_400.0).contains(&age), "{process:?}");
        assert!(process.cpu.unwrap() >= 0.0);
        assert!(process.resident.unwrap() > 1 << 20, "{process:?}");
        let (open, most) = (process.open_files.unwrap(), process.most_files.unwrap());
        assert!(0 < open && open < most, "{process:?}");
    }
}
