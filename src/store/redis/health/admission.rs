//! Whether acquires are let through: only to a server that was examined, and found to be safe.

use std::sync::{Arc, PoisonError, atomic::Ordering};

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

// === impl Admission ===

impl Admission {
    /// Lets an acquire through to the server whose admission this is, or says why not.
    async fn admit(&self, shard: &Arc<Shard>, examiner: &Examiner) -> Result<(), Unavailability> {
        let start = Instant::now();
        let mut pauses = Pauses::new();
        let mut waiting = None;
        loop {
            if let Some(last_verdict) = self.last_verdict() {
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
        let mut logged_before = None;
        loop {
            let last = self.last();
            if let Some(findings) = &last {
                let now: Vec<_> = findings.checks.iter().map(log_entry).collect();
                if logged_before.as_ref() != Some(&now) {
                    log_changes(&now, shard);
                    logged_before = Some(now);
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
        if let Some(last) = self.last().filter(|last| last.at >= since) {
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
            *self
                .last_verdict
                .lock()
                .unwrap_or_else(PoisonError::into_inner) = last_verdict;
        }
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(findings.clone());
        self.found.notify_one();
        findings
    }
}

/// A finding as it is logged: a clock that is off is off by a little more or less each time.
fn log_entry(check: &Check) -> (&'static str, Option<String>) {
    match &check.health {
        Health::Passing => (check.name, None),
        Health::Warning(_) if check.name == "clock" => (check.name, Some("is off".to_owned())),
        Health::Warning(why) | Health::Outage(why) | Health::Misconfigured(why) => {
            (check.name, Some(why.clone()))
        }
    }
}

/// Says what has changed, once: the rest is in the readiness report.
fn log_changes(findings: &[(&'static str, Option<String>)], shard: &Shard) {
    let node = shard.node().map(ToString::to_string);
    for (name, trouble) in findings {
        if let Some(finding) = trouble {
            warn!(
                check = name,
                node, finding, "the store is not as it should be"
            );
        } else {
            info!(check = name, node, "the store is as it should be");
        }
    }
}
