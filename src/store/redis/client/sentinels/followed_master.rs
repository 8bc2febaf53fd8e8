//! Follows the master through failovers.
//!
//! A new connection is made only to a server that a sentinel has just named and that says itself that
//! it is a master. When another one takes over, everything that was connected to the one before is
//! cut off at once. The later word of two sentinels counts, as they count themselves (the
//! configuration epoch), and an earlier word than the latest that counted is believed only of more than
//! half of them, and only when they insist on it (`ask_many.rs`): so a master that was deposed, and sentinels
//! that have missed it, lead nobody back.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{SystemTime, UNIX_EPOCH},
};

use bb8_redis::redis::Value;
use futures_util::future::join_all;
use humantime::format_rfc3339_seconds;
use parking_lot::Mutex;
use tokio::{
    sync::{Mutex as AsyncMutex, Notify},
    time::{Duration, Instant, sleep},
};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::{
    clock::Clock,
    config::{RedisConfig, RedisNode, ServersUrl},
    lifecycle::Lifecycle,
    store::{
        Unavailability,
        contract::{Check, Health},
    },
    telemetry::metrics::StoreFigures,
};

use super::{
    super::{
        ask_many::{EpochRegression, majority},
        connection::Connection,
        credentials::Credentials,
        endpoint::{Endpoint, PubSubConnection},
        failure::Failure,
        identity::RunId,
        script::Command,
    },
    sentinel::{Candidate, Sentinel, ask},
};

/// The master that the sentinels name, whichever it is.
pub(crate) struct FollowedMaster {
    service: String,
    sentinels: Vec<Sentinel>,
    clock: Arc<dyn Clock>,
    credentials: Arc<Credentials>,
    connect_timeout: Duration,
    timeout: Duration,
    /// Held while the sentinels are asked, so that those who ask together get one answer.
    turn: AsyncMutex<()>,
    /// The last answer of the sentinels, and what came of it.
    last: Mutex<Option<(Instant, MasterLookup)>>,
    master: Mutex<Option<Arc<Master>>>,
    /// The latest word that was followed, or that more than half have given.
    epoch: AtomicU64,
    epoch_regression: EpochRegression<RedisNode>,
    /// How often another master was followed than before.
    changes: AtomicU64,
    /// Told when the master may have changed: the sentinels are then asked at once.
    switched: Notify,
}

/// The master, and whether a sentinel has named it; or why there is none.
type MasterLookup = Result<(Arc<Master>, bool), Unavailability>;

/// For how long most sentinels must name a server by an earlier word: after so long they do not learn any more, and
/// their state was made anew. For a moment they do so in every failover, because the one that leads it knows of the new
/// master first, and tells the others within two seconds. Believed at once, they would lead back to a master that still
/// takes writes.
const MUST_PERSIST: Duration = Duration::from_secs(5);
/// How old the answers of the sentinels may be for those who connect: they must not be asked for each of
/// many tries.
const FRESH: Duration = Duration::from_millis(50);
/// How often they are asked although nothing seems to be wrong. A hint that was lost costs so much.
const RECHECK: Duration = Duration::from_secs(1);
/// How often while there is no master.
const RECHECK_WITHOUT: Duration = Duration::from_millis(200);

// === impl FollowedMaster ===

impl FollowedMaster {
    /// Asks nobody yet.
    pub(crate) fn new(url: &ServersUrl, config: &RedisConfig, clock: Arc<dyn Clock>) -> Self {
        let login = url.login();
        let timeout = config.sentinel.timeout_ms.duration();
        let of_sentinels = Arc::new(Credentials::of_sentinels(&login, config));
        let sentinel =
            |node: &RedisNode| Sentinel::new(node.clone(), Arc::clone(&of_sentinels), timeout);
        Self {
            service: url.service().to_owned(),
            sentinels: url.nodes().iter().map(sentinel).collect(),
            clock,
            credentials: Arc::new(Credentials::of_redis(&login, config)),
            connect_timeout: config.connect_timeout_ms.duration(),
            timeout,
            turn: AsyncMutex::new(()),
            last: Mutex::default(),
            master: Mutex::default(),
            epoch: AtomicU64::new(0),
            epoch_regression: EpochRegression::default(),
            changes: AtomicU64::new(0),
            switched: Notify::new(),
        }
    }

    /// The sentinels are asked, a new master is met, and connected to once more.
    pub(crate) fn longest_connect(&self) -> Duration {
        self.timeout + 2 * self.connect_timeout
    }

    /// A new connection to the master.
    pub(crate) async fn connect(&self) -> Result<Connection, Unavailability> {
        let (master, named) = self.ask(FRESH).await?;
        master.connect(named).await
    }

    /// A connection to the master that listens to channels.
    pub(crate) async fn subscribe(
        &self,
        channels: &[&str],
    ) -> Result<PubSubConnection, Unavailability> {
        let (master, _named) = self.ask(FRESH).await?;
        master.endpoint.subscribe(channels).await
    }

    pub(crate) fn current_endpoint(&self) -> Option<Arc<Endpoint>> {
        let master = self.current_master()?;
        Some(Arc::clone(&master.endpoint))
    }

    /// Keeps following the master, until the program stops or the store is closed.
    pub(crate) fn start(self: Arc<Self>, lifecycle: &Lifecycle, closing: &CancellationToken) {
        lifecycle.spawn_until(closing, async move {
            let listening = self.sentinels.iter();
            let listening = listening.map(|it| it.await_switches(&self.service, &self.switched));
            tokio::join!(self.watch(), join_all(listening));
        });
    }

    /// Asks for the master again and again.
    async fn watch(&self) {
        loop {
            let pause = match self.ask(Duration::ZERO).await {
                Ok(_) => RECHECK,
                Err(_told_to_those_who_connect) => RECHECK_WITHOUT,
            };
            tokio::select! {
                () = self.switched.notified() => {}
                () = sleep(pause) => {}
            }
        }
    }

    pub(crate) async fn close(&self) {
        for sentinel in &self.sentinels {
            sentinel.close().await;
        }
        if let Some(master) = self.current_master() {
            master.endpoint.close().await;
        }
    }

    /// The master, by a word that is no older than `age`, and whether a sentinel has named it.
    async fn ask(&self, age: Duration) -> MasterLookup {
        let now = Instant::now();
        let since = now.checked_sub(age).unwrap_or(now);
        let _turn = self.turn.lock().await;
        if let Some((at, outcome)) = &*self.last.lock()
            && *at >= since
        {
            return outcome.clone();
        }
        let (candidates, last_error) = ask(&self.sentinels, &self.service, self.timeout).await;
        let outcome = self.decide(candidates, last_error).await;
        *self.last.lock() = Some((Instant::now(), outcome.clone()));
        outcome
    }

    async fn decide(
        &self,
        candidates: Vec<Candidate>,
        mut last_error: Option<Unavailability>,
    ) -> MasterLookup {
        for candidate in candidates {
            let latest = self.epoch.load(Ordering::Relaxed);
            let most = candidate.by >= majority(self.sentinels.len());
            if let Some(master) = self.current_master()
                && *master.endpoint.node() == candidate.node
            {
                self.epoch.fetch_max(candidate.epoch, Ordering::Relaxed);
                self.epoch_regression.clear();
                return Ok((master, true));
            }
            if candidate.epoch < latest
                && !(most && (self.epoch_regression).has_persisted(&candidate.node, MUST_PERSIST))
            {
                let node = &candidate.node;
                let why = format!("only by an outdated word {node} is named as the master");
                last_error = Some(Unavailability::Refused(why));
                continue;
            }
            match self.verify(&candidate).await {
                Ok(master) => {
                    self.epoch.store(candidate.epoch, Ordering::Relaxed);
                    self.epoch_regression.clear();
                    return Ok((self.follow(master), true));
                }
                Err(why) => {
                    if most && candidate.epoch > latest {
                        // The one before is none any more, whoever is, and nobody leads back to it.
                        self.epoch.store(candidate.epoch, Ordering::Relaxed);
                        self.unfollow(&candidate);
                    }
                    last_error = Some(why);
                }
            }
        }
        // Nobody says anything that can be believed against the one that is followed.
        match (self.current_master(), last_error) {
            (Some(master), _) => Ok((master, false)),
            (None, Some(why)) => Err(why),
            (None, None) => {
                let why = "no sentinel has answered in time".to_owned();
                Err(Unavailability::Connect(why))
            }
        }
    }

    async fn verify(&self, candidate: &Candidate) -> Result<Master, Unavailability> {
        let credentials = Arc::clone(&self.credentials);
        let node = candidate.node.clone();
        let endpoint = Endpoint::new(node, credentials, self.connect_timeout);
        let verified = Master::verify(endpoint, self.clock.wall()).await;
        verified.map_err(|why| match why {
            // What readiness explains begins with what is missing.
            Unavailability::Misconfigured(_) => why,
            why => why.at(format_args!("{}, which the sentinels name", candidate.node)),
        })
    }

    /// Follows another master. What is connected to the one before is cut off first.
    fn follow(&self, master: Master) -> Arc<Master> {
        let master = Arc::new(master);
        let mut now = self.master.lock();
        if let Some(before) = now.take() {
            before.endpoint.disconnect();
            self.changes.fetch_add(1, Ordering::Relaxed);
        }
        *now = Some(Arc::clone(&master));
        drop(now);
        let (service, node) = (&self.service, master.endpoint.node());
        info!(service, %node, "this server is the master");
        master
    }

    /// Stops following a master that is none any more.
    fn unfollow(&self, candidate: &Candidate) {
        let before = self.master.lock().take();
        if let Some(before) = before {
            before.endpoint.disconnect();
            self.changes.fetch_add(1, Ordering::Relaxed);
            let (service, node, named) = (&self.service, before.endpoint.node(), &candidate.node);
            warn!(service, %node, %named, "this server is the master no more");
        }
    }

    fn current_master(&self) -> Option<Arc<Master>> {
        let master = self.master.lock();
        master.clone()
    }
}

// === Master ===

/// A server that was a master when it was last asked.
struct Master {
    endpoint: Arc<Endpoint>,
    /// Since when it is followed.
    since: SystemTime,
    /// By which it tells its runs apart, if it says.
    run: Mutex<Option<RunId>>,
}

// === impl Master ===

impl Master {
    /// Connects to a server, and makes sure that it is a master.
    async fn verify(endpoint: Endpoint, now: SystemTime) -> Result<Self, Unavailability> {
        let connection = verify(&endpoint).await?;
        Ok(Self {
            endpoint: Arc::new(endpoint),
            since: now,
            run: Mutex::new(connection.run().cloned()),
        })
    }

    /// A new connection to it. `named`: a sentinel has just named it. If none has, only to the run
    /// that is known to be the master: one that was started anew may have been replaced meanwhile.
    async fn connect(&self, named: bool) -> Result<Connection, Unavailability> {
        let connection = verify(&self.endpoint).await?;
        let run = connection.run().cloned();
        let mut known = self.run.lock();
        if !named && (run.is_none() || *known != run) {
            let why = "it was started anew, and no sentinel says that it still is the master";
            return Err(Unavailability::Connect(why.to_owned()));
        }
        *known = run;
        Ok(connection)
    }
}

/// A connection to a server that says on it that it is a master.
async fn verify(endpoint: &Endpoint) -> Result<Connection, Unavailability> {
    let limit = Instant::now() + endpoint.connect_timeout();
    let connection = endpoint.connect().await?;
    let role = connection.send(&Command::new("ROLE"), limit).await;
    judge_role(&role.map_err(Failure::reason)?)?;
    Ok(connection)
}

fn judge_role(role: &Value) -> Result<(), Unavailability> {
    let first = match role {
        Value::Array(role) => role.first(),
        _ => None,
    };
    match first {
        Some(Value::BulkString(role)) if role == b"master" => Ok(()),
        Some(Value::BulkString(_)) => {
            let why = "READONLY: this server is a replica, whoever was named".to_owned();
            Err(Unavailability::Refused(why))
        }
        _ => {
            let why = "it answers what no Redis would".to_owned();
            Err(Unavailability::Refused(why))
        }
    }
}

// === Report ===
//
// What there is to see of the master and of the sentinels.

// === impl FollowedMaster ===

impl FollowedMaster {
    /// What readiness says. No address: everybody may ask, and the log names each.
    pub(crate) fn checks(&self) -> Vec<Check> {
        let master = if let Some(master) = self.current_master() {
            let since = format_rfc3339_seconds(master.since);
            Check {
                note: Some(format!("the same since {since}")),
                ..Check::new("master", Health::Passing)
            }
        } else {
            let service = &self.service;
            let why = format!("no server is known to be the master of {service:?}");
            Check::new("master", Health::Outage(why))
        };
        vec![master, self.check_sentinels()]
    }

    fn check_sentinels(&self) -> Check {
        let all = self.sentinels.len();
        let answers = self.sentinels.iter().filter(|it| it.last_error().is_none());
        let answer = answers.count();
        let told = format!("{answer} of {all} answer");
        let why = match answer {
            0 => {
                "the master is used for as long as it lives, and no other one is found. The log says why"
            }
            _ if answer == all => {
                return Check {
                    note: Some(told),
                    ..Check::new("sentinels", Health::Passing)
                };
            }
            _ => "the log and the metrics say which do not",
        };
        Check::new("sentinels", Health::Warning(format!("{told}; {why}")))
    }

    /// What metrics say.
    pub(crate) fn figures(&self, figures: &mut StoreFigures) {
        if let Some(master) = self.current_master() {
            let since = master.since.duration_since(UNIX_EPOCH).unwrap_or_default();
            let node = master.endpoint.node().to_string();
            figures.master = Some((node, since.as_secs_f64()));
        }
        figures.master_changes = Some(self.changes.load(Ordering::Relaxed));
        figures.sentinels = self
            .sentinels
            .iter()
            .map(|sentinel| (sentinel.node().to_string(), sentinel.last_error().is_none()))
            .collect();
    }
}

#[cfg(test)]
mod tests {
    use super::{super::super::resp::text, *};

    #[test]
    fn only_a_master_is_one() {
        let judge = |role| judge_role(&Value::Array(vec![text(role)]));
        assert_eq!(judge("master"), Ok(()));
        for other in [judge("slave"), judge("sentinel"), judge_role(&Value::Nil)] {
            assert!(
                matches!(other, Err(Unavailability::Refused(_))),
                "{other:?}"
            );
        }
    }
}
