//! What there is to see of the master and of the sentinels.

use std::{sync::atomic::Ordering, time::UNIX_EPOCH};

use humantime::format_rfc3339_seconds;

use crate::{
    store::contract::{Check, Health},
    telemetry::metrics::StoreFigures,
};

use super::followed::Followed;

// === impl Followed ===

impl Followed {
    /// What readiness says.
    pub(in crate::store::redis) fn checks(&self) -> Vec<Check> {
        let master = match self.now_followed() {
            Some(master) => Check {
                name: "master",
                health: Health::Passing,
                note: Some(format!(
                    "{} since {}",
                    master.endpoint.node(),
                    format_rfc3339_seconds(master.since)
                )),
            },
            None => Check {
                name: "master",
                health: Health::Outage(format!(
                    "no server is known to be the master of {:?}",
                    self.service
                )),
                note: None,
            },
        };
        vec![master, self.check_sentinels()]
    }

    fn check_sentinels(&self) -> Check {
        let all = self.sentinels.len();
        let troubles = self.sentinels.iter().filter_map(|sentinel| {
            let why = sentinel.trouble()?;
            Some(format!("{}: {why}", sentinel.node()))
        });
        let troubles: Vec<_> = troubles.collect();
        let answer = all - troubles.len();
        let told = format!("{answer} of {all} answer");
        let (health, note) = match (answer, troubles.first()) {
            (_, None) => (Health::Passing, Some(told)),
            (0, Some(why)) => (
                Health::Warning(format!(
                    "{told} ({why}); the master is used for as long as it lives, and no other one is \
                     found"
                )),
                None,
            ),
            (_, Some(why)) => (Health::Warning(format!("{told} ({why})")), None),
        };
        Check {
            name: "sentinels",
            health,
            note,
        }
    }

    /// What metrics say.
    pub(in crate::store::redis) fn figures(&self, figures: &mut StoreFigures) {
        if let Some(master) = self.now_followed() {
            let since = master.since.duration_since(UNIX_EPOCH).unwrap_or_default();
            let node = master.endpoint.node().to_string();
            figures.master = Some((node, since.as_secs_f64()));
        }
        figures.master_changes = Some(self.changes.load(Ordering::Relaxed));
        figures.sentinels = self
            .sentinels
            .iter()
            .map(|sentinel| (sentinel.node().to_string(), sentinel.trouble().is_none()))
            .collect();
    }
}
