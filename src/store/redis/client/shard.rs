//! One server that stores locks: its connections, its limits, and the findings of its last examination.
//!
//! Each server has limits of its own for waiting callers, so that an unreachable server does not block the callers of
//! the others.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use bb8_redis::redis::Value;
use parking_lot::Mutex;
use tokio::{
    sync::{Mutex as AsyncMutex, Notify, OwnedSemaphorePermit, Semaphore, SemaphorePermit},
    time::{Duration, Instant, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::{
    config::{RedisConfig, RedisNode},
    lifecycle::Workers,
    store::{
        Unavailability, Uncertainty,
        contract::{Check, Health},
    },
    telemetry::metrics::ServerFigures,
};

use super::{
    super::{Slot, SlotTags, keys::Keys},
    connection::{Connection, answered},
    failure::{Failure, hint},
    identity::info_field,
    pool::{Pool, Route},
    replicas::{MarkerConnection, Replicas},
    script::Command,
};

/// One server that stores locks: a fixed server, a master of a cluster, or the master that the sentinels name.
pub(crate) struct Shard {
    pub(crate) pool: Pool,
    pub(crate) replicas: Replicas,
    pub(crate) admission: Admission,
    /// Cancelled when the gateway stops using the server.
    pub(crate) disconnected: CancellationToken,
    /// Address of the server, if the store has several servers.
    node: Option<RedisNode>,
    /// Limits how many acquires and inspections are in progress at the server.
    pub(crate) asking: AskingRoom,
    /// Limits how many acquires and inspections wait while the server is unreachable.
    waiting: Arc<Semaphore>,
    /// Limits how many renewals and releases wait while the server is unreachable. Separate from `waiting`, so that a
    /// crowd of acquires cannot block them.
    keeping: Arc<Semaphore>,
}

/// Limits how many commands are in progress that neither keep nor end a lease: acquires and inspections.
#[derive(Debug)]
pub(crate) struct AskingRoom(Semaphore);

/// Purpose of a command to a server. The commands of each class have a limit of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CommandClass {
    /// The command acquires a lock, or inspects locks.
    Ask,
    /// The command renews or releases a lease.
    Keep,
}

/// Maximum number of acquires and inspections that are under way at once at a server. A renewal or a release waits
/// behind no more commands than these: some milliseconds of the server's time.
const ASKING: usize = 1_024;
/// Minimum time that an acquire or an inspection waits for a permit before it is refused. Nothing of it has been sent
/// by then.
const ROOM_WITHIN: Duration = Duration::from_secs(1);
/// Maximum number of callers of one class that wait for an unreachable server, if the store has several servers.
/// Further callers are refused at once: otherwise they would take up what the callers of the other servers need.
const WAITING: usize = 256;

// === impl Shard ===

impl Shard {
    /// Creates the state of a server. `node`: address of the server, if the store has several servers.
    pub(crate) fn new(
        route: Route,
        node: Option<RedisNode>,
        config: &RedisConfig,
        workers: &Workers,
    ) -> Self {
        Self {
            pool: Pool::new(route, config, workers),
            replicas: Replicas::new(config),
            admission: Admission::default(),
            disconnected: CancellationToken::new(),
            node,
            asking: AskingRoom(Semaphore::new(ASKING)),
            waiting: Arc::new(Semaphore::new(WAITING)),
            keeping: Arc::new(Semaphore::new(WAITING)),
        }
    }

    /// Address of the server, if the store has several servers.
    pub(crate) fn node(&self) -> Option<&RedisNode> {
        self.node.as_ref()
    }

    /// Permit to wait for the server. The permit is needed only if the store has several servers and this server is
    /// unreachable. Fails if too many callers wait already.
    pub(crate) fn wait_permit(
        &self,
        with: CommandClass,
    ) -> Result<Option<OwnedSemaphorePermit>, Unavailability> {
        if self.node.is_none() {
            return Ok(None);
        }
        let Some(why) = self.pool.last_error() else {
            return Ok(None);
        };
        let room = match with {
            CommandClass::Ask => &self.waiting,
            CommandClass::Keep => &self.keeping,
        };
        match Arc::clone(room).try_acquire_owned() {
            Ok(place) => Ok(Some(place)),
            Err(_as_many_as_may) => Err(Unavailability::Connect(self.named(&why))),
        }
    }

    /// Returns a connection to the server. If this fails, nothing was sent.
    pub(crate) async fn connection(&self, limit: Instant) -> Result<Connection, Failure> {
        let connection = self.pool.connection(limit).await;
        connection.map_err(|why| match why {
            Unavailability::Connect(what) => {
                Failure::Transient(Unavailability::Connect(self.named(&what)))
            }
            Unavailability::Misconfigured(_) => Failure::Refused(why),
            other => Failure::Transient(other),
        })
    }

    /// The connection whose markers confirm the grants that are made in the slot from now on; `None` if replicas are
    /// not waited for.
    pub(crate) async fn marker_connection(
        &self,
        slot: Slot,
        tags: &SlotTags,
        limit: Instant,
    ) -> Result<Option<Arc<MarkerConnection>>, Unavailability> {
        let marker = || match &self.node {
            Some(_one_of_a_cluster) => Keys::in_slot(slot, tags, "marker"),
            None => Keys::MARKER.to_owned(),
        };
        self.replicas
            .marker_connection(&self.pool, marker, limit)
            .await
    }

    /// Address of the server for metrics and the log; `None` while the server is not known.
    pub(crate) fn address(&self) -> Option<String> {
        let endpoint = self.pool.route.endpoint()?;
        Some(endpoint.node().to_string())
    }

    /// The state of the server for observers of the store; `None` while the server is not known, or not yet examined: a
    /// server that joins a cluster is not away.
    pub(crate) fn figures(&self) -> Option<ServerFigures> {
        let endpoint = self.pool.route.endpoint()?;
        let (restarts, moves) = endpoint.replacements();
        Some(ServerFigures {
            node: endpoint.node().to_string(),
            is_up: self.admission.reached()?,
            restarts,
            moves,
        })
    }

    /// Prefixes a text with the address of the server, if the store has several servers.
    pub(crate) fn named(&self, what: &str) -> String {
        match &self.node {
            Some(node) => format!("{node}: {what}"),
            None => what.to_owned(),
        }
    }

    /// Stops using the server: nothing more is sent to it, and every connection ends.
    pub(crate) fn disconnect(&self) {
        self.disconnected.cancel();
        self.pool.route.disconnect();
    }
}

// === impl AskingRoom ===

impl AskingRoom {
    /// A permit for an acquire or an inspection, if one is free.
    pub(crate) fn at_once(&self) -> Option<SemaphorePermit<'_>> {
        self.0.try_acquire().ok()
    }

    /// Waits for a permit for an acquire or an inspection: for a second, or for as long as the caller is willing to
    /// wait for the lock if that is longer.
    pub(crate) async fn within(
        &self,
        ready_to_wait: Duration,
    ) -> Result<SemaphorePermit<'_>, Unavailability> {
        if let Some(room) = self.at_once() {
            return Ok(room);
        }
        match timeout(ROOM_WITHIN.max(ready_to_wait), self.0.acquire()).await {
            Ok(Ok(room)) => Ok(room),
            Ok(Err(_)) | Err(_) => Err(Unavailability::Overloaded),
        }
    }
}

// === Destination ===

/// The server to which a command is sent.
pub(crate) struct Destination {
    pub(crate) shard: Arc<Shard>,
    /// Whether an ASK redirect named the server. An ASK redirect counts for this command alone.
    pub(crate) asking: bool,
}

// === impl Destination ===

impl Destination {
    pub(crate) fn at(shard: &Arc<Shard>) -> Self {
        Self {
            shard: Arc::clone(shard),
            asking: false,
        }
    }

    /// Sends a command on a connection to the destination, after ASKING if the redirect requires it.
    pub(super) async fn send(
        &self,
        connection: &Connection,
        command: &Command,
        limit: Instant,
    ) -> Result<Value, Failure> {
        if !self.asking {
            return connection.send(command, limit).await;
        }
        // ASKING counts for the next command of the connection, so no other command may come between ASKING and the
        // command.
        let both = [Command::new("ASKING"), command.clone()];
        let mut replies = connection.send_all(&both, limit).await?;
        match (replies.pop(), replies.pop()) {
            (_, Some(Value::ServerError(error)))
            | (Some(Value::ServerError(error)), Some(Value::Okay)) => Err(answered(&error)),
            (Some(value), Some(Value::Okay)) => Ok(value),
            _ => Err(unexpected(connection, "no answer to ASKING".to_owned())),
        }
    }
}

/// The failure for a reply that answers another command. Retires the connection, because its later replies cannot be
/// trusted either.
pub(super) fn unexpected(connection: &Connection, what: String) -> Failure {
    connection.retire();
    Failure::Unknown(Uncertainty::UnexpectedReply(what))
}

// === Admission ===
//
// What the last examination of a server found: whether locks are safe there, and when it was examined.

/// The findings of the last examination of a server.
#[derive(Default)]
pub(crate) struct Admission {
    /// Held during an examination, so that callers that ask at the same time share one examination.
    pub(crate) turn: AsyncMutex<()>,
    pub(crate) last: Mutex<Option<Findings>>,
    /// Whether the server was found safe by the last examination that reached it.
    pub(crate) is_safe: AtomicBool,
    /// Verdict of the last examination that reached the server: safe, or the reason why not.
    pub(crate) last_verdict: Mutex<Option<Result<(), String>>>,
    /// Notified when an examination of the server has new findings.
    pub(crate) found: Notify,
    /// How many seconds the server's clock was ahead of the gateway's clock at the last examination.
    pub(crate) skew: Mutex<Option<f64>>,
    /// The eviction policy of the server that was last read.
    pub(crate) policy: Mutex<Option<String>>,
    /// Whether the memory of the server was nearly full when it was last read.
    pub(crate) nearly_full: AtomicBool,
}

/// The findings of one examination of a server.
#[derive(Debug, Clone)]
pub(crate) struct Findings {
    pub(crate) at: Instant,
    pub(crate) checks: Vec<Check>,
    pub(crate) verdict: SafetyVerdict,
}

/// Whether locks may be granted at a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SafetyVerdict {
    /// Locks may be granted at the server.
    Safe,
    /// Locks may not be granted at the server, for this reason.
    Unsafe(String),
    /// The server did not answer the examination.
    Unreachable(Unavailability),
}

/// The eviction policy of a server that never evicts a key.
pub(crate) const NO_EVICTION: &str = "noeviction";

// === impl Admission ===

impl Admission {
    /// Whether the server answered the last examination; `None` before the first one.
    pub(crate) fn reached(&self) -> Option<bool> {
        let last = self.last.lock();
        let last = last.as_ref()?;
        Some(!matches!(last.verdict, SafetyVerdict::Unreachable(_)))
    }

    /// Whether the server answered the last examination.
    pub(crate) fn is_reached(&self) -> bool {
        self.reached() == Some(true)
    }

    /// Whether the memory of the server was nearly full when it was last examined.
    pub(crate) fn is_nearly_full(&self) -> bool {
        self.nearly_full.load(Ordering::Relaxed)
    }
}

// === impl Findings ===

impl Findings {
    pub(crate) fn new(
        verdict: SafetyVerdict,
        checks: impl IntoIterator<Item = (&'static str, Health)>,
    ) -> Self {
        let checks = checks.into_iter();
        Self {
            at: Instant::now(),
            checks: checks
                .map(|(name, health)| Check::new(name, health))
                .collect(),
            verdict,
        }
    }

    /// Findings for a server that could not be examined, from the failure of a command of the examination.
    pub(crate) fn of_failure(failure: Failure, acl_line: &str) -> Self {
        let why = match failure {
            Failure::Unknown(why) => Unavailability::Connect(why.to_string()),
            Failure::NoScript | Failure::WrongType => {
                let key = Keys::PROBE;
                Unavailability::Refused(format!("the server does not run the probe on {key}"))
            }
            known => known.reason(),
        };
        match hint(why, acl_line) {
            Unavailability::Misconfigured(why) => {
                let checks = [
                    ("connection", Health::Passing),
                    ("permissions", Health::Misconfigured(why.clone())),
                ];
                Self::new(SafetyVerdict::Unsafe(why), checks)
            }
            why => {
                let outage = Health::Outage(why.to_string());
                Self::new(SafetyVerdict::Unreachable(why), [("connection", outage)])
            }
        }
    }
}

/// The share of `maxmemory`, in percent, above which the memory of a server counts as nearly full.
const NEARLY_FULL: u64 = 80;

/// Reads from a reply to `INFO memory` whether the memory is nearly full. Memory without a limit never is.
pub(crate) fn nearly_full(info: &str) -> bool {
    let number = |field| info_field(info, field)?.parse::<u64>().ok();
    match (number("used_memory"), number("maxmemory")) {
        (Some(used), Some(limit)) if limit > 0 => used / NEARLY_FULL > limit / 100,
        _ => false,
    }
}

/// Reads the eviction policy from a reply to `INFO memory`; [`NO_EVICTION`] if the memory has no limit, `None` if the
/// reply does not say.
pub(crate) fn eviction_policy(info: &str) -> Option<String> {
    let limit: u64 = info_field(info, "maxmemory")?.parse().ok()?;
    let policy = info_field(info, "maxmemory_policy")?;
    Some(if limit == 0 { NO_EVICTION } else { policy }.to_owned())
}

#[cfg(test)]
mod tests {
    use tokio::time::{Instant, sleep};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_does_not_wait_is_turned_away_after_a_second_and_who_waits_when_its_wait_is_over() {
        let room = AskingRoom(Semaphore::new(1));
        let taken = room.at_once().expect("it is free");
        assert!(room.at_once().is_none());
        let since = Instant::now();
        for (wait, answered) in [(0, 1), (4, 5)] {
            let refused = room.within(Duration::from_secs(wait)).await;
            assert_eq!(refused.err(), Some(Unavailability::Overloaded));
            assert_eq!(since.elapsed(), Duration::from_secs(answered));
        }
        let (granted, ()) = tokio::join!(room.within(Duration::from_secs(9)), async {
            sleep(Duration::from_secs(8)).await;
            drop(taken);
        });
        assert!(granted.is_ok());
        assert_eq!(since.elapsed(), Duration::from_secs(13));
    }

    #[test]
    fn eviction_happens_only_with_a_limit_and_a_policy() {
        let info = |limit: u64, policy: &str| {
            format!(
                "# Memory\r\nused_memory:900\r\nmaxmemory:{limit}\r\nmaxmemory_human:1\r\n\
                 maxmemory_policy:{policy}\r\n"
            )
        };
        for (limit, policy, read) in [
            (0, "allkeys-lru", NO_EVICTION),
            (1, "noeviction", NO_EVICTION),
            (1, "volatile-ttl", "volatile-ttl"),
        ] {
            let policy = eviction_policy(&info(limit, policy));
            assert_eq!(policy.as_deref(), Some(read));
        }
        assert_eq!(eviction_policy("# Memory\r\n"), None);
    }

    #[test]
    fn memory_is_nearly_full_above_four_fifths_of_its_limit() {
        for (used, limit, is_full) in [
            (900, 0, false),
            (80_000, 100_000, false),
            (81_000, 100_000, true),
        ] {
            let info = format!("# Memory\r\nused_memory:{used}\r\nmaxmemory:{limit}\r\n");
            assert_eq!(nearly_full(&info), is_full, "{used} of {limit}");
        }
        assert!(!nearly_full(""));
    }
}
