//! Looks whether the server is one in which locks are safe: at the start, on every new connection,
//! once a minute, and whenever somebody asks.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bb8_redis::redis::{Cmd, Value};
use tokio::time::{Duration, Instant};

use crate::{
    clock::Clock,
    store::{
        Unavailability,
        contract::{Check, Health},
    },
};

use super::{
    Slot,
    dispatch::Dispatch,
    eviction::Eviction,
    failure::Failure,
    floors::Floors,
    gateway::Gateway,
    keys::Keys,
    permissions,
    replicated::Replicated,
    scripts::{Permission, Probed, Scripts},
};

/// What it takes to examine a server.
pub(super) struct Examiner {
    pub(super) dispatch: Arc<Dispatch>,
    pub(super) scripts: Arc<Scripts>,
    pub(super) replicated: Arc<Replicated>,
    pub(super) floors: Arc<Floors>,
    pub(super) gateway: Arc<Gateway>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) accept_eviction: bool,
    /// By how many seconds the server's clock was ahead of ours when it was last looked at.
    pub(super) skew: Mutex<Option<f64>>,
    /// What was last read of the eviction policy.
    pub(super) policy: Mutex<Option<Eviction>>,
}

/// What an examination found.
#[derive(Debug, Clone)]
pub(super) struct Findings {
    pub(super) at: Instant,
    pub(super) checks: Vec<Check>,
    pub(super) verdict: Verdict,
}

/// Whether locks may be granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// They may.
    Safe,
    /// They may not, for this reason.
    Unsafe(String),
    /// The server did not answer.
    Unreachable(Unavailability),
}

/// By how much the clocks may differ before it is worth a look.
const SKEW: Duration = Duration::from_secs(1);
/// The times from which fences may be made, as in `acquire.lua`.
const POSSIBLE: std::ops::Range<u64> = 1_735_689_600..7_258_118_400;

// === impl Examiner ===

impl Examiner {
    /// Examines the server now.
    pub(super) async fn examine(&self, limit: Duration) -> Findings {
        let probed = self.scripts.probe(&self.dispatch, Instant::now() + limit);
        let mut findings = match probed.await {
            Ok(probed) => self.findings(&probed, self.eviction().await),
            Err(failure) => Findings::of_failure(failure),
        };
        if let Verdict::Safe = findings.verdict {
            findings.checks.extend(self.replicated.check().await);
        }
        findings.checks.extend(self.dispatch.topology.checks());
        findings
    }

    /// Ends when a new connection has been made: to a server that may have been configured anew.
    pub(super) async fn connected(&self) {
        self.dispatch.topology.connected().await;
    }

    fn findings(&self, probed: &Probed, eviction: Health) -> Findings {
        let refused = &self.gateway.unsubscribed;
        let refused = refused.lock().unwrap_or_else(PoisonError::into_inner);
        let permissions = permissions::judge(probed, refused.as_deref());
        drop(refused);
        let clock = self.judge_clock(probed.time);
        let may_run = |(_, permission): &(String, Permission)| *permission == Permission::Given;
        let verdict = match (&permissions, &eviction) {
            (Health::Misconfigured(why), _) if !probed.commands.iter().all(may_run) => {
                Verdict::Unsafe(why.clone())
            }
            (_, Health::Misconfigured(why)) => Verdict::Unsafe(why.clone()),
            // What was found before stands, and is looked at again soon.
            (_, Health::Outage(why)) => Verdict::Unreachable(Unavailability::Connect(why.clone())),
            _ => Verdict::Safe,
        };
        Findings::new(
            verdict,
            [
                ("connection", judge_refusals(probed)),
                ("permissions", permissions),
                ("eviction", eviction),
                ("clock", clock),
            ],
        )
    }

    async fn eviction(&self) -> Health {
        let mut command = Cmd::new();
        command.arg("INFO").arg("memory");
        let slot = Slot::of(Keys::PROBE.as_bytes());
        let eviction = match self.dispatch.plain(slot, &command).await {
            Ok(Value::BulkString(info)) => Eviction::from_info(&String::from_utf8_lossy(&info)),
            Ok(_) => None,
            Err(Failure::Refused(why)) => {
                let missing = format!("the eviction policy cannot be read: {why}");
                return self.unread(permissions::explain(&missing));
            }
            Err(failure) => return Health::Outage(describe(failure).to_string()),
        };
        let Some(eviction) = eviction else {
            return self.unread("the server does not tell its eviction policy".to_owned());
        };
        *self.last_policy() = Some(eviction.clone());
        self.judge_eviction(&eviction)
    }

    fn judge_eviction(&self, eviction: &Eviction) -> Health {
        match eviction {
            Eviction::Never => Health::Passing,
            Eviction::ByPolicy(policy) => {
                let finding = format!("the server evicts keys when its memory is full ({policy})");
                if self.accept_eviction {
                    Health::Warning(format!("{finding}; accepted by redis.accept_eviction"))
                } else {
                    Health::Misconfigured(format!(
                        "{finding}, which frees locks that are held; set maxmemory-policy \
                         noeviction, or accept it with redis.accept_eviction"
                    ))
                }
            }
        }
    }

    /// A policy that cannot be read any more is taken for the one that was read last: a server that
    /// evicts does not become safe by not saying so.
    fn unread(&self, why: String) -> Health {
        let last = self.last_policy().clone();
        match last.map(|policy| self.judge_eviction(&policy)) {
            Some(Health::Misconfigured(what)) => {
                Health::Misconfigured(format!("{what} (when it was last read: {why})"))
            }
            _ => Health::Warning(why),
        }
    }

    fn last_policy(&self) -> MutexGuard<'_, Option<Eviction>> {
        self.policy.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn judge_clock(&self, time: Duration) -> Health {
        if !POSSIBLE.contains(&time.as_secs()) {
            let seconds = time.as_secs();
            let finding = format!("the server's clock shows {seconds} s since 1970");
            return Health::Misconfigured(format!("{finding}; no fencing token is made from it"));
        }
        let here = self.clock.wall().duration_since(std::time::UNIX_EPOCH);
        let here = here.unwrap_or_default();
        let ahead = time.as_secs_f64() - here.as_secs_f64();
        *self.skew.lock().unwrap_or_else(PoisonError::into_inner) = Some(ahead);
        if Duration::from_micros(self.floors.highest()) > time + SKEW {
            let finding = "a fencing token is ahead of the server's clock: the clock has stepped back, or \
                           the counter was raised (by another server's data, or by hand); tokens go \
                           on rising from there";
            return Health::Warning(finding.to_owned());
        }
        let skew = here.abs_diff(time);
        if skew > SKEW {
            let ms = skew.as_millis();
            return Health::Warning(format!(
                "the clocks of the server and of this gateway differ by {ms} ms"
            ));
        }
        Health::Passing
    }
}

/// Whether the server takes writes.
fn judge_refusals(probed: &Probed) -> Health {
    match &probed.refusal {
        None => Health::Passing,
        Some(Unavailability::OutOfMemory) => {
            let finding = "the server is out of memory: no lock is granted until it has some";
            Health::Warning(finding.to_owned())
        }
        Some(why) => Health::Outage(why.to_string()),
    }
}

fn describe(failure: Failure) -> Unavailability {
    match failure {
        Failure::Transient(why) | Failure::WrongNode(why) | Failure::Refused(why) => why,
        Failure::Unknown(why) => Unavailability::Connect(why.to_string()),
        Failure::NoScript | Failure::WrongType => {
            let key = Keys::PROBE;
            Unavailability::Refused(format!("the server does not run the probe on {key}"))
        }
    }
}

// === impl Findings ===

impl Findings {
    fn new(verdict: Verdict, checks: impl IntoIterator<Item = (&'static str, Health)>) -> Self {
        let checks = checks.into_iter();
        Self {
            at: Instant::now(),
            checks: checks
                .map(|(name, health)| Check {
                    name,
                    health,
                    note: None,
                })
                .collect(),
            verdict,
        }
    }

    fn of_failure(failure: Failure) -> Self {
        match describe(failure) {
            Unavailability::Misconfigured(why) => {
                let why = permissions::hint(why);
                let checks = [
                    ("connection", Health::Passing),
                    ("permissions", Health::Misconfigured(why.clone())),
                ];
                Self::new(Verdict::Unsafe(why), checks)
            }
            why => {
                let outage = Health::Outage(why.to_string());
                Self::new(Verdict::Unreachable(why), [("connection", outage)])
            }
        }
    }
}
