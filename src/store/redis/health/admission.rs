//! Admission of acquires: only a server that was examined and found safe receives them. Also the readiness report,
//! which merges the findings of all servers.

use std::{
    collections::HashMap,
    mem::take,
    sync::{Arc, atomic::Ordering},
};

use futures_util::future::join_all;
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
        Command,
        dispatch::{Pauses, on_each},
        shard::{Admission, CommandClass, Findings, SafetyVerdict, Shard},
    },
    examination::Examiner,
};

/// How long findings are reused for readiness probes, which must not keep a server busy.
const FRESH: Duration = Duration::from_secs(1);
/// How often a healthy server is examined.
const PERIOD: Duration = Duration::from_mins(1);
/// How often a server with a problem is examined, so that a repair takes effect at once.
const PERIOD_WHILE_UNSAFE: Duration = Duration::from_secs(1);
/// How often a healthy server is pinged, so that an idle gateway notices an outage, too.
const PING_PERIOD: Duration = Duration::from_secs(2);

// === impl Admission ===

impl Admission {
    /// Waits until the server is known to be safe for an acquire, or answers why it is not.
    async fn admit(&self, shard: &Arc<Shard>, examiner: &Examiner) -> Result<(), Unavailability> {
        let start = Instant::now();
        let mut pauses = Pauses::new();
        let mut waiting = None;
        loop {
            let last_verdict = self.last_verdict.lock().clone();
            if let Some(last_verdict) = last_verdict {
                return last_verdict.map_err(Unavailability::Misconfigured);
            }
            // The server has not been reached since this gateway started.
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

    /// As `admit`, but at most until `limit`, and without waiting if the server is known to be safe.
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
            let why = "the server was not examined in time";
            Err(Unavailability::Connect(why.to_owned()))
        })
    }

    /// The findings on the server, not older than [`FRESH`].
    pub(crate) async fn check(&self, shard: &Arc<Shard>, examiner: &Examiner) -> Vec<Check> {
        let now = Instant::now();
        let since = now.checked_sub(FRESH).unwrap_or(now);
        self.examine_since(since, shard, examiner).await.checks
    }

    /// Examines the server repeatedly, and logs changes of its findings.
    async fn watch(&self, shard: &Arc<Shard>, examiner: &Examiner) {
        let mut logged = HashMap::new();
        loop {
            let last = self.last.lock().clone();
            for check in last.iter().flat_map(|findings| &findings.checks) {
                let entry = log_entry(check);
                if logged.get(check.name) != Some(&entry) {
                    let node = shard.address();
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
                // A new connection may lead to a server with another configuration.
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
            // An unreachable server says nothing about its configuration, so the last verdict stays.
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
    /// Pings the server until it no longer answers.
    async fn wait_for_outage(&self, shard: &Arc<Shard>) {
        let ping = Command::new("PING");
        loop {
            sleep(PING_PERIOD).await;
            if self.dispatch.plain_to(shard, &ping).await.is_err() {
                return;
            }
        }
    }
}

/// Log entry of every outage. The reason is left out, so that an outage is logged once although its reason changes.
const AWAY: &str = "is away";

/// A finding in the form that is compared with the last logged finding; `None` if all is well. The difference of a
/// clock is left out, because it varies a little each time.
fn log_entry(check: &Check) -> Option<String> {
    match &check.health {
        Health::Passing => None,
        Health::Warning(_) if check.name == "clock" => Some("is off".to_owned()),
        Health::Outage(_) => Some(AWAY.to_owned()),
        Health::Warning(why) | Health::Misconfigured(why) => Some(why.clone()),
    }
}

/// Logs a changed finding once. The readiness report has the details.
fn log_change(check: &Check, node: Option<&str>, was_away: bool) {
    let name = check.name;
    match &check.health {
        Health::Outage(reason) if name == "connection" => {
            warn!(node, reason, "the store's server is unavailable");
        }
        Health::Passing if name == "connection" && was_away => {
            info!(node, "the store's server is available again");
        }
        Health::Passing => info!(check = name, node, "a check of the store passes"),
        Health::Warning(finding) | Health::Outage(finding) | Health::Misconfigured(finding) => {
            warn!(
                check = name,
                node, finding, "a check of the store does not pass"
            );
        }
    }
}

// Merges the findings of all servers.

// === impl Examiner ===

impl Examiner {
    /// The findings of all servers, merged as if there were one server.
    pub(crate) async fn check(&self) -> Vec<Check> {
        let topology = &self.dispatch.topology;
        topology.wait_until_known().await;
        let shards = topology.shards();
        let checks = shards
            .iter()
            .map(|shard| shard.admission.check(shard, self));
        let mut checks = join_all(checks).await;
        if !topology.is_cluster() {
            return checks.pop().unwrap_or_default();
        }
        let of_each = shards.iter().map(Arc::as_ref).zip(checks).collect();
        let mut found = merge(of_each);
        found.extend(topology.checks());
        found
    }

    /// Examines all servers repeatedly.
    pub(crate) async fn watch(self: Arc<Self>) {
        let watch = |shard: Arc<Shard>| {
            let examiner = Arc::clone(&self);
            async move {
                let examining = shard.admission.watch(&shard, &examiner);
                tokio::join!(examining, shard.pool.watch_address());
            }
        };
        on_each(&self.dispatch, |shard| Box::pin(watch(shard))).await;
    }
}

/// Merges the findings of servers into one finding for each name, which is as bad as the worst and names its servers. A
/// server that could not be examined has fewer findings.
fn merge(of_each: Vec<(&Shard, Vec<Check>)>) -> Vec<Check> {
    let mut merged: Vec<Check> = Vec::new();
    for (shard, checks) in of_each {
        for mut named in checks {
            for text in named.health.text_mut().into_iter().chain(&mut named.note) {
                *text = shard.named(text);
            }
            match merged.iter_mut().find(|it| it.name == named.name) {
                Some(before) => before.join(named),
                None => merged.push(named),
            }
        }
    }
    merged
}

// === impl Check ===

impl Check {
    fn join(&mut self, mut other: Self) {
        self.note = match (take(&mut self.note), other.note) {
            (Some(here), Some(there)) => Some(format!("{here}; {there}")),
            (here, there) => here.or(there),
        };
        let (here, there) = (self.health.severity(), other.health.severity());
        if here < there {
            self.health = other.health;
        } else if here == there
            && let (Some(here), Some(there)) = (self.health.text_mut(), other.health.text_mut())
        {
            *here = format!("{here}; {there}");
        }
        self.refuses_for = self.refuses_for.max(other.refuses_for);
    }
}

// === impl Health ===

impl Health {
    fn text_mut(&mut self) -> Option<&mut String> {
        match self {
            Self::Passing => None,
            Self::Warning(why) | Self::Outage(why) | Self::Misconfigured(why) => Some(why),
        }
    }

    fn severity(&self) -> u8 {
        match self {
            Self::Passing => 0,
            Self::Warning(_) => 1,
            Self::Outage(_) => 2,
            Self::Misconfigured(_) => 3,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_finding_counts_and_equals_are_told_together() {
        let [warning, outage, wrong] = [
            Health::Warning("w".to_owned()),
            Health::Outage("o".to_owned()),
            Health::Misconfigured("m".to_owned()),
        ];
        let joined = |findings: &[&Health]| {
            let mut joined = Check::new("check", Health::Passing);
            for finding in findings {
                joined.join(Check::new("check", (*finding).clone()));
            }
            joined.health
        };
        assert_eq!(joined(&[&Health::Passing, &warning]), warning);
        assert_eq!(joined(&[&outage, &warning, &Health::Passing]), outage);
        assert_eq!(joined(&[&warning, &outage, &wrong, &outage]), wrong);
        let both = Health::Outage("o; o".to_owned());
        assert_eq!(joined(&[&outage, &outage]), both);
    }
}
