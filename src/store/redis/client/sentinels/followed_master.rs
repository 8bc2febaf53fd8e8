//! Follows the master through failovers.
//!
//! A new connection is made only to a server that a sentinel has just named and that itself says that it is a master.
//! When another server becomes the master, all connections to the previous one are closed at once. An answer counts if
//! more than half of the sentinels that answer give it. An answer with an earlier epoch than the latest that counted is
//! followed only if more than half of all sentinels give this answer, and keep giving it for a while (`ask_many.rs`).
//! So neither a deposed master nor sentinels that have missed its end can lead the gateway back to it.
//!
//! If no answer counts, the latest epoch is followed once no other server that is named or followed is a master. While
//! more than half of all sentinels name one server, no other server is followed: a sentinel that watches another master
//! under the same name is outvoted, even while the real master is down and not replaced yet.

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
    time::{Duration, Instant, sleep, timeout},
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
    disagreement::Disagreement,
    sentinel::{Candidate, Sentinel, ask},
};

/// Finds and follows the master that the sentinels name.
pub(crate) struct FollowedMaster {
    service: String,
    sentinels: Vec<Sentinel>,
    clock: Arc<dyn Clock>,
    credentials: Arc<Credentials>,
    connect_timeout: Duration,
    timeout: Duration,
    /// Held while the sentinels are asked, so that callers that ask at the same time share one answer.
    turn: AsyncMutex<()>,
    /// The last answer of the sentinels, and when the gateway got it.
    last: Mutex<Option<(Instant, MasterLookup)>>,
    master: Mutex<Option<Arc<Master>>>,
    /// The latest configuration epoch that was followed, or that more than half of the sentinels have given.
    epoch: AtomicU64,
    epoch_regression: EpochRegression<RedisNode>,
    disagreement: Disagreement,
    /// How often the followed master has changed.
    changes: AtomicU64,
    /// Notified when the master may have changed: the sentinels are then asked at once.
    switched: Notify,
}

/// The followed master, and whether most sentinels that answer have just named it; or the reason why there is no master.
type MasterLookup = Result<(Arc<Master>, bool), Unavailability>;

/// How long most sentinels must name a server with an earlier epoch before it is followed: after this time they learn
/// nothing newer, so their state was reset. In every failover most sentinels name the old master for a moment, because
/// the sentinel that leads the failover knows the new master first, and tells the others within two seconds. If the
/// gateway followed them at once, it would go back to a master that still accepts writes.
const MUST_PERSIST: Duration = Duration::from_secs(5);
/// Maximum age of the sentinels' last answer when a connection is opened, so that the sentinels are not asked for each
/// of many connects.
const FRESH: Duration = Duration::from_millis(50);
/// How often the sentinels are asked for the master while nothing seems to be wrong. If an announcement is lost, a
/// failover is noticed this much later.
const RECHECK: Duration = Duration::from_secs(1);
/// How often the sentinels are asked for the master while there is none, or while they begin to disagree.
const RECHECK_WITHOUT: Duration = Duration::from_millis(200);
/// How long a server may take to give its role while the sentinels begin to disagree. A server that is frozen must not
/// delay the next question to the sentinels.
const GLANCE: Duration = Duration::from_millis(100);

// === impl FollowedMaster ===

impl FollowedMaster {
    /// Creates the state of following a master. Asks no sentinel yet.
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
            disagreement: Disagreement::default(),
            changes: AtomicU64::new(0),
            switched: Notify::new(),
        }
    }

    /// Maximum time of a connect to the master: the sentinels are asked, a new master is verified on one connection,
    /// and another connection is opened.
    pub(crate) fn longest_connect(&self) -> Duration {
        self.timeout + 2 * self.connect_timeout
    }

    /// Opens a new connection to the master.
    pub(crate) async fn connect(&self) -> Result<Connection, Unavailability> {
        let (master, named) = self.ask(FRESH).await?;
        master.connect(named).await
    }

    /// Opens a connection to the master that is subscribed to channels.
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

    /// Starts the tasks that follow the master, until the program stops or the store is closed.
    pub(crate) fn start(self: Arc<Self>, lifecycle: &Lifecycle, closing: &CancellationToken) {
        lifecycle.spawn_until(closing, async move {
            let listening = self.sentinels.iter();
            let listening = listening.map(|it| it.await_switches(&self.service, &self.switched));
            tokio::join!(self.watch(), join_all(listening));
        });
    }

    /// Asks the sentinels for the master repeatedly, and at once when it may have changed.
    async fn watch(&self) {
        loop {
            let pause = match self.ask(Duration::ZERO).await {
                Ok(_) if !self.disagreement.is_new() => RECHECK,
                // Those who connect are told the error.
                _ => RECHECK_WITHOUT,
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

    /// Returns the master and whether most sentinels have named it, by answers of the sentinels that are no older than
    /// `age`.
    async fn ask(&self, age: Duration) -> MasterLookup {
        let now = Instant::now();
        let since = now.checked_sub(age).unwrap_or(now);
        let _turn = self.turn.lock().await;
        if let Some((at, outcome)) = &*self.last.lock()
            && *at >= since
        {
            return outcome.clone();
        }
        // While sentinels disagree, distant ones must be heard, too: their answers may make the majority.
        let patiently = self.disagreement.may_be_decided() || self.disagreement.lasts();
        let asked = ask(&self.sentinels, &self.service, self.timeout, patiently);
        let (candidates, last_error) = asked.await;
        self.disagreement.note(&candidates, &self.service);
        let outcome = self.decide(candidates, last_error).await;
        *self.last.lock() = Some((Instant::now(), outcome.clone()));
        outcome
    }

    async fn decide(
        &self,
        mut candidates: Vec<Candidate>,
        mut last_error: Option<Unavailability>,
    ) -> MasterLookup {
        let followed = self.current_master();
        let is_followed =
            |it: &Candidate| (followed.as_ref()).is_some_and(|master| *master.node() == it.node);
        let most_of_all = majority(self.sentinels.len());
        let answering = self.sentinels.iter().filter(|it| it.is_present()).count();
        let most = majority(answering);
        let named = (candidates.iter()).find(|it| is_followed(it) && it.by >= most);
        if let Some(named) = named {
            let latest = self.epoch.load(Ordering::Relaxed);
            if named.epoch >= latest || self.may_go_back_to(named, most_of_all) {
                self.epoch.store(named.epoch, Ordering::Relaxed);
                self.epoch_regression.clear();
            }
        }
        let named = named.is_some();

        // The server of the latest epoch, if few sentinels name it and most sentinels name no other server.
        let is_outvoted = candidates.iter().any(|it| it.by >= most_of_all);
        let few = candidates.first().filter(|it| {
            let latest = self.epoch.load(Ordering::Relaxed);
            let is_latest = candidates.get(1).is_none_or(|next| next.epoch < it.epoch);
            is_latest && it.epoch >= latest && it.by < most && !is_followed(it) && !is_outvoted
        });
        let few = few.map(|it| it.node.clone());
        if few.is_none() {
            self.disagreement.not_due();
        }
        // What most sentinels name is tried before a later epoch that few name.
        candidates.sort_by_key(|it| it.by < most);
        for candidate in candidates.iter().filter(|it| !is_followed(it)) {
            let node = &candidate.node;
            let latest = self.epoch.load(Ordering::Relaxed);
            if candidate.epoch < latest && !self.may_go_back_to(candidate, most_of_all) {
                let why = format!("only an outdated message names {node} as the master");
                last_error = Some(Unavailability::Refused(why));
                continue;
            }
            if candidate.by < most
                && !(few.as_ref() == Some(node) && self.has_no_rival(candidate, &candidates).await)
            {
                let by = candidate.by;
                let why = format!("only {by} of {answering} sentinels that answer say {node}");
                last_error = Some(Unavailability::Refused(why));
                continue;
            }
            match self.verify(candidate).await {
                Ok(master) => {
                    self.epoch.store(candidate.epoch, Ordering::Relaxed);
                    self.epoch_regression.clear();
                    self.disagreement.not_due();
                    return Ok((self.follow(master), true));
                }
                Err(why) => {
                    if candidate.by >= most_of_all && candidate.epoch > latest {
                        // Most sentinels name another server, so the previous master is deposed even if the new one
                        // cannot be reached. The stored epoch prevents a return to the previous master.
                        self.epoch.store(candidate.epoch, Ordering::Relaxed);
                        self.unfollow(candidate);
                    }
                    if candidate.by < most {
                        self.disagreement.not_due();
                    }
                    last_error = Some(why);
                }
            }
        }
        // No answer of the sentinels overrules the followed master, so the gateway keeps it.
        match (self.current_master(), last_error) {
            (Some(master), _) => Ok((master, named)),
            (None, Some(why)) => Err(why),
            (None, None) => {
                let why = "no sentinel has answered in time".to_owned();
                Err(Unavailability::Connect(why))
            }
        }
    }

    /// Whether an answer with an earlier epoch than the gateway has followed counts.
    fn may_go_back_to(&self, candidate: &Candidate, most_of_all: usize) -> bool {
        let by_most = candidate.by >= most_of_all;
        by_most && (self.epoch_regression).has_persisted(&candidate.node, MUST_PERSIST)
    }

    /// Whether no server but this one, which few sentinels name, is a master: the followed master, and other servers
    /// that sentinels name. A server that cannot be reached must stay so for a while.
    async fn has_no_rival(&self, candidate: &Candidate, candidates: &[Candidate]) -> bool {
        let is_due = self.disagreement.is_due(&candidate.node);
        let limit = if is_due { self.connect_timeout } else { GLANCE };
        let followed = self.current_master();
        let others = candidates.iter().filter(|it| {
            let is_followed = (followed.as_ref()).is_some_and(|by| *by.node() == it.node);
            it.node != candidate.node && !is_followed
        });
        let mut others: Vec<_> = others
            .map(|it| (Arc::new(self.endpoint(it)), None))
            .collect();
        if let Some(master) = followed {
            others.push((Arc::clone(&master.endpoint), master.run.lock().clone()));
        }
        let roles = others.iter().map(async |(endpoint, run)| {
            let asked = timeout(limit, is_master(endpoint, run.as_ref())).await;
            asked.ok().flatten()
        });
        let roles = join_all(roles).await;
        if roles.contains(&Some(true)) {
            self.disagreement.not_due();
            return false;
        }
        is_due || (!roles.is_empty() && roles.iter().all(|role| *role == Some(false)))
    }

    fn endpoint(&self, candidate: &Candidate) -> Endpoint {
        let (node, credentials) = (candidate.node.clone(), Arc::clone(&self.credentials));
        Endpoint::new(node, credentials, self.connect_timeout)
    }

    async fn verify(&self, candidate: &Candidate) -> Result<Master, Unavailability> {
        let verified = Master::verify(self.endpoint(candidate), self.clock.wall()).await;
        verified.map_err(|why| match why {
            // A wrong configuration stays without a prefix, because its text begins with what is missing.
            Unavailability::Misconfigured(_) => why,
            why => why.at(format_args!("{}, which the sentinels name", candidate.node)),
        })
    }

    /// Follows another master. The connections to the previous one are closed first.
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

    /// Stops following the master, because the sentinels name another server instead.
    fn unfollow(&self, candidate: &Candidate) {
        let before = self.master.lock().take();
        if let Some(before) = before {
            before.endpoint.disconnect();
            self.changes.fetch_add(1, Ordering::Relaxed);
            let (service, node, named) = (&self.service, before.endpoint.node(), &candidate.node);
            warn!(service, %node, %named, "this server is no longer the master");
        }
    }

    fn current_master(&self) -> Option<Arc<Master>> {
        let master = self.master.lock();
        master.clone()
    }
}

// === Master ===

/// A server that said that it is a master when it was last asked.
struct Master {
    endpoint: Arc<Endpoint>,
    /// Since when the gateway follows this master.
    since: SystemTime,
    /// Id of the run of the master that was verified last, if the server names its run.
    run: Mutex<Option<RunId>>,
}

// === impl Master ===

impl Master {
    /// Connects to a server, and verifies that the server is a master.
    async fn verify(endpoint: Endpoint, now: SystemTime) -> Result<Self, Unavailability> {
        let connection = verify(&endpoint).await?;
        Ok(Self {
            endpoint: Arc::new(endpoint),
            since: now,
            run: Mutex::new(connection.run().cloned()),
        })
    }

    fn node(&self) -> &RedisNode {
        self.endpoint.node()
    }

    /// Opens a new connection to the master. `named`: whether most sentinels that answer have just named it. Otherwise
    /// the connection must reach the known run of the master: a server that was restarted may have been replaced
    /// meanwhile.
    async fn connect(&self, named: bool) -> Result<Connection, Unavailability> {
        let connection = verify(&self.endpoint).await?;
        let run = connection.run().cloned();
        let mut known = self.run.lock();
        if !named && (run.is_none() || *known != run) {
            let why = "the server was started again, and the sentinels do not say that it still is \
                       the master";
            return Err(Unavailability::Connect(why.to_owned()));
        }
        *known = run;
        Ok(connection)
    }
}

/// Opens a connection to a server, and verifies with ROLE on this connection that the server is a master.
async fn verify(endpoint: &Endpoint) -> Result<Connection, Unavailability> {
    let (connection, role) = ask_role(endpoint).await?;
    judge_role(&role)?;
    Ok(connection)
}

async fn ask_role(endpoint: &Endpoint) -> Result<(Connection, Value), Unavailability> {
    let limit = Instant::now() + endpoint.connect_timeout();
    let connection = endpoint.connect().await?;
    let role = connection.send(&Command::new("ROLE"), limit).await;
    Ok((connection, role.map_err(Failure::reason)?))
}

/// Whether a server is a master by its own account, and in this `run` if one is known; `None` if the server does not
/// say.
async fn is_master(endpoint: &Endpoint, run: Option<&RunId>) -> Option<bool> {
    let (connection, role) = ask_role(endpoint).await.ok()?;
    let is_master = judge_role(&role).is_ok();
    // A master that was restarted may have been replaced meanwhile.
    let is_restarted = run.is_some() && connection.run() != run;
    (!(is_master && is_restarted)).then_some(is_master)
}

fn judge_role(role: &Value) -> Result<(), Unavailability> {
    let first = match role {
        Value::Array(role) => role.first(),
        _ => None,
    };
    match first {
        Some(Value::BulkString(role)) if role == b"master" => Ok(()),
        Some(Value::BulkString(_)) => {
            let why = "READONLY: this server is a replica, although a sentinel named it as the \
                       master"
                .to_owned();
            Err(Unavailability::Refused(why))
        }
        _ => {
            let why = "the server gives an answer that no Redis server gives".to_owned();
            Err(Unavailability::Refused(why))
        }
    }
}

// === Report ===
//
// Reports the state of the master and of the sentinels.

// === impl FollowedMaster ===

impl FollowedMaster {
    /// Readiness checks of the master and the sentinels. They name no address, because any caller may read them; the
    /// log names each server.
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
        if self.disagreement.lasts() {
            let why = "they name different masters, and the log says which: the gateway believes \
                       most of those that answer";
            return Check::new("sentinels", Health::Warning(format!("{told}; {why}")));
        }
        let why = match answer {
            0 => {
                "the gateway uses the master as long as the master answers, and notices no \
                 failover. The log says why"
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

    /// Adds the metrics of the master and the sentinels.
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
