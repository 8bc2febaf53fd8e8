//! What is known of a server: whether locks are safe there, when it was last looked at.

use std::sync::atomic::AtomicBool;

use parking_lot::Mutex;
use tokio::{
    sync::{Mutex as AsyncMutex, Notify},
    time::Instant,
};

use crate::store::{
    Unavailability,
    contract::{Check, Health},
};

use super::{
    super::keys::Keys,
    failure::{Failure, hint},
    identity::info_field,
};

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
    pub(crate) policy: Mutex<Option<Eviction>>,
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

/// What `INFO memory` says about eviction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Eviction {
    /// No key is ever evicted.
    Never,
    /// Keys are evicted by this policy when the memory is full.
    ByPolicy(String),
}

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

    pub(crate) fn of_failure(failure: Failure, acl_line: &str) -> Self {
        match hint(describe(failure), acl_line) {
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

// === impl Eviction ===

impl Eviction {
    /// Reads `INFO memory`; `None` if it does not say.
    pub(crate) fn from_info(info: &str) -> Option<Self> {
        let limit: u64 = info_field(info, "maxmemory")?.parse().ok()?;
        let policy = info_field(info, "maxmemory_policy")?;
        Some(if limit == 0 || policy == "noeviction" {
            Self::Never
        } else {
            Self::ByPolicy(policy.to_owned())
        })
    }
}

/// Why a server could not be examined, by what came of a command that was to.
pub(crate) fn describe(failure: Failure) -> Unavailability {
    match failure {
        Failure::Unknown(why) => Unavailability::Connect(why.to_string()),
        Failure::NoScript | Failure::WrongType => {
            let key = Keys::PROBE;
            Unavailability::Refused(format!("the server does not run the probe on {key}"))
        }
        known => known.reason(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eviction_happens_only_with_a_limit_and_a_policy() {
        let info = |limit: u64, policy: &str| {
            format!(
                "# Memory\r\nused_memory:900\r\nmaxmemory:{limit}\r\nmaxmemory_human:1\r\n\
                 maxmemory_policy:{policy}\r\n"
            )
        };
        let read = |limit, policy| Eviction::from_info(&info(limit, policy)).unwrap();
        assert_eq!(read(0, "allkeys-lru"), Eviction::Never);
        assert_eq!(read(1, "noeviction"), Eviction::Never);
        let policy = Eviction::ByPolicy("volatile-ttl".to_owned());
        assert_eq!(read(1, "volatile-ttl"), policy);
        assert_eq!(Eviction::from_info("# Memory\r\n"), None);
    }
}
