//! The time for which sentinels have named different servers, and for which a server that only few of them name has had
//! no rival.

use std::mem::take;

use parking_lot::Mutex;
use tokio::time::{Duration, Instant};
use tracing::{info, warn};

use crate::config::RedisNode;

use super::sentinel::Candidate;

/// What is known while the sentinels name different servers.
#[derive(Default)]
pub(super) struct Disagreement(Mutex<DisagreementState>);

#[derive(Default)]
struct DisagreementState {
    /// Since when the sentinels have named different servers.
    since: Option<Instant>,
    is_logged: bool,
    /// The server that few sentinels name, with the latest epoch, and since when no other server was found to be a
    /// master.
    unrivalled: Option<(RedisNode, Instant)>,
}

/// How long sentinels must name different servers before the gateway reports this, and before it follows the latest
/// answer of few sentinels while no other master can be reached. In every failover sentinels disagree for a moment: the
/// sentinel that leads the failover tells the others within two seconds.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);

// === impl Disagreement ===

impl Disagreement {
    /// Records which servers the sentinels name now. Logs a disagreement that lasts, and its end.
    pub(super) fn note(&self, candidates: &[Candidate], service: &str) {
        let mut now = self.0.lock();
        if candidates.len() < 2 {
            now.since = None;
            if take(&mut now.is_logged) {
                info!(service, "the sentinels no longer name different masters");
            }
            return;
        }
        let since = *now.since.get_or_insert_with(Instant::now);
        if !now.is_logged && since.elapsed() >= PATIENCE {
            now.is_logged = true;
            let named = candidates
                .iter()
                .map(|it| format!("{} by {}", it.node, it.by));
            let named = named.collect::<Vec<_>>().join(", ");
            warn!(service, named, "the sentinels name different masters");
        }
    }

    /// Whether the sentinels have named different servers for so long that no failover explains it.
    pub(super) fn lasts(&self) -> bool {
        self.0.lock().is_logged
    }

    /// Whether the gateway should ask the sentinels again soon.
    pub(super) fn is_new(&self) -> bool {
        let now = self.0.lock();
        now.unrivalled.is_some() || now.since.is_some() && !now.is_logged
    }

    /// Records that few sentinels name this server, with the latest epoch. Returns whether it has had no rival for
    /// long enough.
    pub(super) fn is_due(&self, node: &RedisNode) -> bool {
        let unrivalled = &mut self.0.lock().unrivalled;
        match unrivalled {
            Some((before, since)) if before == node => since.elapsed() >= PATIENCE,
            _ => {
                *unrivalled = Some((node.clone(), Instant::now()));
                false
            }
        }
    }

    /// Whether the next answers of the sentinels may decide that a server is followed that only few of them name.
    pub(super) fn may_be_decided(&self) -> bool {
        let unrivalled = &self.0.lock().unrivalled;
        matches!(unrivalled, Some((_, since)) if since.elapsed() >= PATIENCE)
    }

    /// Records that another server is a master, or that no server is named by few sentinels with the latest epoch.
    pub(super) fn not_due(&self) {
        self.0.lock().unrivalled = None;
    }
}
