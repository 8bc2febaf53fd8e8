//! What there is to see of the master and of the sentinels.

use std::{sync::atomic::Ordering, time::UNIX_EPOCH};

use humantime::format_rfc3339_seconds;

use crate::{
    store::contract::{Check, Health},
    telemetry::metrics::StoreFigures,
};

use super::followed_master::FollowedMaster;

// === impl FollowedMaster ===

impl FollowedMaster {
    /// What readiness says. No address: everybody may ask, and the log names each.
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
        let why = match answer {
            0 => {
                "the master is used for as long as it lives, and no other one is found. The log says why"
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

    /// What metrics say.
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
