//! Whether acquires are let through: only to a server that was examined, and found to be safe.

use std::{
    collections::HashMap,
    sync::{Arc, atomic::Ordering},
};

use bb8_redis::redis::cmd;
use tokio::{
    select,
    time::{Duration, Instant, sleep, sleep_until, timeout_at},
};
use tracing::{info, warn};

use crate::store::{
    Unavailability,
    contract::{Check, Health},
};

use super::{
    super::client::{
        dispatch::Pauses,
        safety::{Admission, Findings, SafetyVerdict},
        shard::{CommandClass, Shard},
    },
    examination::Examiner,
};

/// How long findings count for those who ask: readiness probes must not keep a server busy.
const FRESH: Duration = Duration::from_secs(1);
/// How often a server is examined in which all is well.
const PERIOD: Duration = Duration::from_mins(1);
/// How often one is examined in which something is wrong, so that mending it helps at once.
const PERIOD_WHILE_UNSAFE: Duration = Duration::from_secs(1);
/// How often a server is pinged in which all is well: an idle gateway must notice an outage, too.
const PING_PERIOD: Duration = Duration::from_secs(2);

// === impl Admission ===

impl Admission {
    /// Lets an acquire through to the server whose admission this is, or says why not.
    async fn admit(&self, shard: &Arc<Shard>, examiner: &Examiner) -> Result<(), Unavailability> {
        let start = Instant::now();
        let mut pauses = Pauses::new();
        let mut waiting = None;
        loop {
            let last_verdict = self.last_verdict.lock().clone();
            if let Some(last_verdict) = last_verdict {
                return last_verdict.map_err(Unavailability::Misconfigured);
            }
            // Nobody has reached the server yet.
            if waiting.is_none() {
                waiting = shard.wait_permit(CommandClass::Ask)?;
            }
            let found = self.examine_since(Instant::now(), shard, examiner);
            if let SafetyVerdict::Unreachable(why) = found.await.verdict {
                let pause = pauses.next();
                if start.elapsed() + pause >= FRESH {
                    return Err(why);
                }
                sleep(pause).await;
            }
        }
    }

    /// The same, as long as whoever asks may wait.
    pub(crate) async fn admit_by(
        &self,
        shard: &Arc<Shard>,
        examiner: &Examiner,
        limit: Instant,
    ) -> Result<(), Unavailability> {
        if self.is_safe.load(Ordering::Acquire) {
            return Ok(());
        }
        let admitted = timeout_at(limit, self.admit(shard, examiner)).await;
        admitted.unwrap_or_else(|_elapsed| {
            let why = "it was not found out in time whether locks are safe there";
            Err(Unavailability::Connect(why.to_owned()))
        })
    }

    /// What is known of the server, not older than [`FRESH`].
    pub(crate) async fn check(&self, shard: &Arc<Shard>, examiner: &Examiner) -> Vec<Check> {
        let now = Instant::now();
        let since = now.checked_sub(FRESH).unwrap_or(now);
        self.examine_since(since, shard, examiner).await.checks
    }

    /// Examines the server again and again.
    pub(crate) async fn watch(&self, shard: &Arc<Shard>, examiner: &Examiner) {
        let mut logged = HashMap::new();
        loop {
            let last = self.last.lock().clone();
            for check in last.iter().flat_map(|findings| &findings.checks) {
                let entry = log_entry(check);
                if logged.get(check.name) != Some(&entry) {
                    let node = examiner.dispatch.topology.node(shard);
                    let before = logged.insert(check.name, entry).flatten();
                    log_change(check, node.as_deref(), before.as_deref() == Some(AWAY));
                }
            }
            let due = last.map_or_else(Instant::now, |last| match last.verdict {
                SafetyVerdict::Safe => last.at + PERIOD,
                SafetyVerdict::Unsafe(_) | SafetyVerdict::Unreachable(_) => {
                    last.at + PERIOD_WHILE_UNSAFE
                }
            });
            select! {
                () = self.found.notified() => continue,
                () = sleep_until(due) => {}
                // To a server that may have been configured anew.
                () = shard.pool.wait_connected() => {}
                () = examiner.wait_for_outage(shard) => {}
            }
            self.examine_since(Instant::now(), shard, examiner).await;
        }
    }

    /// The findings of an examination that ended after `since`.
    async fn examine_since(
        &self,
        since: Instant,
        shard: &Arc<Shard>,
        examiner: &Examiner,
    ) -> Findings {
        let _turn = self.turn.lock().await;
        let last = self.last.lock().clone();
        if let Some(last) = last.filter(|last| last.at >= since) {
            return last;
        }
        let findings = examiner.examine(shard).await;
        let last_verdict = match &findings.verdict {
            SafetyVerdict::Safe => Some(Ok(())),
            SafetyVerdict::Unsafe(why) => Some(Err(why.clone())),
            // It says nothing about the configuration; what was found before stands.
            SafetyVerdict::Unreachable(_) => None,
        };
        if let Some(found) = &last_verdict {
            self.is_safe.store(found.is_ok(), Ordering::Release);
            *self.last_verdict.lock() = last_verdict;
        }
        *self.last.lock() = Some(findings.clone());
        self.found.notify_one();
        findings
    }
}

// === impl Examiner ===

impl Examiner {
    /// Ends when the server does not answer any more.
    async fn wait_for_outage(&self, shard: &Arc<Shard>) {
        loop {
            sleep(PING_PERIOD).await;
            if self.dispatch.plain_to(shard, &cmd("PING")).await.is_err() {
                return;
            }
        }
    }
}

/// What is logged of an outage, however often its reason changes: one line for each outage.
const AWAY: &str = "is away";

/// A finding as it is compared with the one that was logged before; `None` if all is well. A clock that is off is
/// off by a little more or less each time.
fn log_entry(check: &Check) -> Option<String> {
    match &check.health {
        Health::Passing => None,
        Health::Warning(_) if check.name == "clock" => Some("is off".to_owned()),
        Health::Outage(_) => Some(AWAY.to_owned()),
        Health::Warning(why) | Health::Misconfigured(why) => Some(why.clone()),
    }
}

/// Says what has changed, once: the rest is in the readiness report.
fn log_change(check: &Check, node: Option<&str>, was_away: bool) {
    let name = check.name;
    match &check.health {
        Health::Outage(reason) if name == "connection" => {
            warn!(node, reason, "the store's server is unavailable");
        }
        Health::Passing if name == "connection" && was_away => {
            info!(node, "the store's server is available again");
        }
        Health::Passing => info!(check = name, node, "the store is as it should be"),
        Health::Warning(finding) | Health::Outage(finding) | Health::Misconfigured(finding) => {
            warn!(
                check = name,
                node, finding, "the store is not as it should be"
            );
        }
    }
}
