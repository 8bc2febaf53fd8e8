//! One server that has locks: the way to it, and what is known of it.
//!
//! Each has room of its own for those who ask, so that one that is away takes nothing from the others.

use std::sync::{Arc, atomic::AtomicBool};

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

/// One server that has locks, or whichever is the master.
pub(crate) struct Shard {
    pub(crate) pool: Pool,
    pub(crate) replicas: Replicas,
    pub(crate) admission: Admission,
    /// Told when it is given up.
    pub(crate) disconnected: CancellationToken,
    /// Where it is, if it is one of several.
    node: Option<RedisNode>,
    /// Room for those who ask for something.
    pub(crate) asking: AskingRoom,
    /// Room for those who wait for it while it is away.
    waiting: Arc<Semaphore>,
    /// The same for those who keep a lease or end it: a crowd that wants locks takes nothing from them.
    keeping: Arc<Semaphore>,
}

/// Room for commands that keep nobody's lease, among those that are under way.
#[derive(Debug)]
pub(crate) struct AskingRoom(Semaphore);

/// What somebody wants of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CommandClass {
    /// To get a lock, or to know something.
    Ask,
    /// To keep a lease, or to end it.
    Keep,
}

/// How many acquires and inspections may be under way at once. A renewal or a release waits for no
/// more than these, however many ask: some milliseconds of the server's time.
const ASKING: usize = 1_024;
/// How long the others wait for room at least. Nothing has been sent for them then.
const ROOM_WITHIN: Duration = Duration::from_secs(1);
/// How many of one class may wait at once for one of several servers that is away. The others are
/// told so at once: what they keep busy meanwhile is missed by those who ask the servers that are there.
const WAITING: usize = 256;

// === impl Shard ===

impl Shard {
    /// `node`: where the server is, if it is one of several.
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

    /// Where it is, if it is one of several.
    pub(crate) fn node(&self) -> Option<&RedisNode> {
        self.node.as_ref()
    }

    /// Room to wait for it, if it is one of several and away.
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

    /// A connection to it. Without one nothing was sent.
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

    /// The connection on which it will be found out which replicas have what is done in a slot from now on; `None` if
    /// nobody waits for that.
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

    /// What it is called in metrics and in the log; `None` while it is not known which server it is.
    pub(crate) fn address(&self) -> Option<String> {
        let endpoint = self.pool.route.endpoint()?;
        Some(endpoint.node().to_string())
    }

    /// Says of which server something is told, if it is one of several.
    pub(crate) fn named(&self, what: &str) -> String {
        match &self.node {
            Some(node) => format!("{node}: {what}"),
            None => what.to_owned(),
        }
    }

    /// Gives it up: from now on nothing is sent to it, and every connection ends.
    pub(crate) fn disconnect(&self) {
        self.disconnected.cancel();
        self.pool.route.disconnect();
    }
}

// === impl AskingRoom ===

impl AskingRoom {
    /// Room, if there is some.
    pub(crate) fn at_once(&self) -> Option<SemaphorePermit<'_>> {
        self.0.try_acquire().ok()
    }

    /// Room within a second, or for as long as the caller is ready to wait for what it asks for.
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

/// Where a command is sent.
pub(crate) struct Destination {
    pub(crate) shard: Arc<Shard>,
    /// Whether that server was pointed to for this command alone.
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

    /// Sends a command on a connection to it.
    pub(super) async fn send(
        &self,
        connection: &Connection,
        command: &Command,
        limit: Instant,
    ) -> Result<Value, Failure> {
        if !self.asking {
            return connection.send(command, limit).await;
        }
        // It counts for the next command of the connection, so nothing may come between the two.
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

/// A reply to something else: whatever comes on this connection cannot be believed any more.
pub(super) fn unexpected(connection: &Connection, what: String) -> Failure {
    connection.retire();
    Failure::Unknown(Uncertainty::UnexpectedReply(what))
}

// === Admission ===
//
// What is known of the server: whether locks are safe there, when it was last looked at.

/// Keeps what the last examination of a server found.
#[derive(Default)]
pub(crate) struct Admission {
    /// Held while examining, so that those who ask together get one examination.
    pub(crate) turn: AsyncMutex<()>,
    pub(crate) last: Mutex<Option<Findings>>,
    /// Whether all was well at the last examination that reached the server.
    pub(crate) is_safe: AtomicBool,
    /// What stands since that one.
    pub(crate) last_verdict: Mutex<Option<Result<(), String>>>,
    /// Somebody asked, and there are new findings.
    pub(crate) found: Notify,
    /// By how many seconds the server's clock was ahead of ours when it was last looked at.
    pub(crate) skew: Mutex<Option<f64>>,
    /// What was last read of the eviction policy.
    pub(crate) policy: Mutex<Option<String>>,
}

/// What an examination found.
#[derive(Debug, Clone)]
pub(crate) struct Findings {
    pub(crate) at: Instant,
    pub(crate) checks: Vec<Check>,
    pub(crate) verdict: SafetyVerdict,
}

/// Whether locks may be granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SafetyVerdict {
    /// They may.
    Safe,
    /// They may not, for this reason.
    Unsafe(String),
    /// The server did not answer.
    Unreachable(Unavailability),
}

/// The policy by which no key is ever evicted.
pub(crate) const NO_EVICTION: &str = "noeviction";

// === impl Admission ===

impl Admission {
    /// Whether the server answered when it was last looked at.
    pub(crate) fn is_reached(&self) -> bool {
        let last = self.last.lock();
        (last.as_ref()).is_some_and(|it| !matches!(it.verdict, SafetyVerdict::Unreachable(_)))
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

    /// Why a server could not be examined, by what came of a command that was to.
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

/// By which policy keys are evicted when the memory is full, [`NO_EVICTION`] if none ever is. Reads `INFO memory`;
/// `None` if it does not say.
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
}
