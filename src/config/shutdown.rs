//! How the gateway stops.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Invalid, Millis};

/// How the gateway stops.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ShutdownConfig {
    /// How long a gateway takes to end after a TERM or INT signal at most; less than 250 is taken for
    /// 250. Nothing is acquired any more; renew and release go on until the last second of it (the last
    /// quarter, if it is shorter than 4000), which is for answers that are under way and for closing
    /// the store. It ends sooner: as soon as no lease that was granted or renewed here lives, no
    /// request has come for a second, and every answer was taken. A client that takes nothing of its
    /// answer is waited for until three quarters of this time are over. A second signal ends it at
    /// once. Give an orchestrator more time than this before it kills.
    #[schemars(range(min = 0, max = 600_000))]
    pub grace_ms: Millis,
    /// The first part of `grace_ms`: at most half of it. In it only `/readyz` fails, so that load
    /// balancers stop sending requests here; those that come are served like any other, acquires too.
    /// Longer than it takes a load balancer to notice: the period of its check times the failures that
    /// it needs.
    #[schemars(range(min = 0, max = 300_000))]
    pub delay_ms: Millis,
}

// === impl ShutdownConfig ===

impl ShutdownConfig {
    /// What it takes to close a store in good order, on a machine that does other things as well.
    pub const SHORTEST: Duration = Duration::from_millis(250);

    /// Finds out whether the gateway can stop in this way.
    pub(super) fn validate(&self) -> Result<(), Invalid> {
        if self.delay_ms.0 > self.grace_ms.0 / 2 {
            let half = format!("at most half of shutdown.grace_ms, {}", self.grace_ms.0 / 2);
            return Err(Invalid::new("shutdown.delay_ms", self.delay_ms.0, half)
                .depending_on("shutdown.grace_ms"));
        }
        Ok(())
    }
}

impl Default for ShutdownConfig {
    fn default() -> Self {
        // Below the 30 s after which Kubernetes kills, with room for what comes before and after.
        Self {
            grace_ms: Millis(10_000),
            // Not everybody has a load balancer, and a developer's Ctrl-C waits for nobody.
            delay_ms: Millis(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delay_leaves_half_of_the_grace() {
        let with = |delay, grace| ShutdownConfig {
            delay_ms: Millis(delay),
            grace_ms: Millis(grace),
        };
        with(5_000, 10_000).validate().unwrap();
        let invalid = with(5_001, 10_000).validate().unwrap_err();
        assert_eq!(invalid.key, "shutdown.delay_ms");
        assert_eq!(invalid.depends_on, Some("shutdown.grace_ms"));
        assert!(with(1, 0).validate().is_err());
    }
}
