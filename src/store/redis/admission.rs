//! Whether acquires are let through: only to a server that was examined, and found to be safe.

use std::sync::{Mutex, PoisonError};

use tokio::{
    select,
    sync::{Mutex as AsyncMutex, Notify},
    time::{Duration, Instant, sleep, sleep_until},
};
use tracing::{info, warn};

use crate::store::{
    Unavailability,
    contract::{Check, Health},
};

use super::{
    dispatch::Pauses,
    examination::{Examiner, Findings, Verdict},
};

/// Keeps what the last examination found.
pub(super) struct Admission {
    examiner: Examiner,
    limit: Duration,
    /// Held while examining, so that those who ask together get one examination.
    turn: AsyncMutex<()>,
    last: Mutex<Option<Findings>>,
    /// What stands since the last examination that reached the server.
    standing: Mutex<Option<Result<(), String>>>,
    /// Somebody asked, and there are new findings.
    found: Notify,
}

/// How long findings count for those who ask: readiness probes must not keep a server busy.
const FRESH: Duration = Duration::from_secs(1);
/// How often a server is examined in which all is well.
const PERIOD: Duration = Duration::from_mins(1);
/// How often one is examined in which something is wrong, so that mending it helps at once.
const PERIOD_OF_TROUBLE: Duration = Duration::from_secs(1);

// === impl Admission ===

impl Admission {
    pub(super) fn new(examiner: Examiner, limit: Duration) -> Self {
        Self {
            examiner,
            limit,
            turn: AsyncMutex::new(()),
            last: Mutex::new(None),
            standing: Mutex::new(None),
            found: Notify::new(),
        }
    }

    /// Lets an acquire through, or says why not.
    pub(super) async fn admit(&self) -> Result<(), Unavailability> {
        let start = Instant::now();
        let mut pauses = Pauses::new();
        loop {
            if let Some(standing) = self.standing() {
                return standing.map_err(Unavailability::Misconfigured);
            }
            // Nobody has reached the server yet.
            if let Verdict::Unreachable(why) = self.examine_since(Instant::now()).await.verdict {
                let pause = pauses.next();
                if start.elapsed() + pause >= FRESH {
                    return Err(why);
                }
                sleep(pause).await;
            }
        }
    }

    /// By how many seconds the server's clock was ahead of ours when it was last looked at.
    pub(super) fn clock_skew(&self) -> Option<f64> {
        let skew = &self.examiner.skew;
        *skew.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known of the server, not older than [`FRESH`].
    pub(super) async fn check(&self) -> Vec<Check> {
        let now = Instant::now();
        let since = now.checked_sub(FRESH).unwrap_or(now);
        self.examine_since(since).await.checks
    }

    /// Examines the server again and again.
    pub(super) async fn watch(&self, stopped: impl Future<Output = ()>) {
        let mut stopped = std::pin::pin!(stopped);
        let mut told_before = None;
        loop {
            let last = self.last();
            if let Some(findings) = &last {
                let now: Vec<_> = findings.checks.iter().map(told).collect();
                if told_before.as_ref() != Some(&now) {
                    tell(&now);
                    told_before = Some(now);
                }
            }
            let due = last.map_or_else(Instant::now, |last| match last.verdict {
                Verdict::Safe => last.at + PERIOD,
                Verdict::Unsafe(_) | Verdict::Unreachable(_) => last.at + PERIOD_OF_TROUBLE,
            });
            select! {
                () = &mut stopped => return,
                () = self.found.notified() => continue,
                () = sleep_until(due) => {}
                () = self.examiner.connected() => {}
            }
            select! {
                () = &mut stopped => return,
                _findings = self.examine_since(Instant::now()) => {}
            }
        }
    }

    /// The findings of an examination that ended after `since`.
    async fn examine_since(&self, since: Instant) -> Findings {
        let _turn = self.turn.lock().await;
        let last = self
            .last
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        if let Some(last) = last.filter(|last| last.at >= since) {
            return last;
        }
        let findings = self.examiner.examine(self.limit).await;
        let standing = match &findings.verdict {
            Verdict::Safe => Some(Ok(())),
            Verdict::Unsafe(why) => Some(Err(why.clone())),
            // It says nothing about the configuration; what was found before stands.
            Verdict::Unreachable(_) => None,
        };
        if standing.is_some() {
            *self.standing.lock().unwrap_or_else(PoisonError::into_inner) = standing;
        }
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(findings.clone());
        self.found.notify_one();
        findings
    }

    fn last(&self) -> Option<Findings> {
        self.last
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn standing(&self) -> Option<Result<(), String>> {
        self.standing
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// A finding as it is logged: a clock that is off is off by a little more or less each time.
fn told(check: &Check) -> (&'static str, Option<String>) {
    match &check.health {
        Health::Passing => (check.name, None),
        Health::Warning(_) if check.name == "clock" => (check.name, Some("is off".to_owned())),
        Health::Warning(why) | Health::Outage(why) | Health::Misconfigured(why) => {
            (check.name, Some(why.clone()))
        }
    }
}

/// Says what has changed, once: the rest is in the readiness report.
fn tell(findings: &[(&'static str, Option<String>)]) {
    for (name, trouble) in findings {
        if let Some(finding) = trouble {
            warn!(check = name, finding, "the store is not as it should be");
        } else {
            info!(check = name, "the store is as it should be");
        }
    }
}
