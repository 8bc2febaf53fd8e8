//! What is found of all servers together.

use std::{mem::take, sync::Arc};

use futures_util::future::join_all;

use crate::store::contract::{Check, Health};

use super::{
    super::client::{dispatch::on_each, shard::Shard},
    examination::Examiner,
};

// === impl Examiner ===

impl Examiner {
    /// What is known of the servers, as if they were one.
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

    /// Examines all servers again and again.
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

/// One finding of each name, as bad as the worst of them, which says where it was found. A server that
/// could not be examined says less than others.
fn merge(of_each: Vec<(&Shard, Vec<Check>)>) -> Vec<Check> {
    let mut merged: Vec<Check> = Vec::new();
    for (shard, checks) in of_each {
        for check in checks {
            let named = Check {
                health: check.health.map(|why| shard.named(&why)),
                note: check.note.map(|note| shard.named(&note)),
                ..check
            };
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
    fn join(&mut self, other: Self) {
        self.note = match (take(&mut self.note), other.note) {
            (Some(here), Some(there)) => Some(format!("{here}; {there}")),
            (here, there) => here.or(there),
        };
        let here = std::mem::replace(&mut self.health, Health::Passing);
        self.health = here.join(other.health);
        self.refuses_for = self.refuses_for.max(other.refuses_for);
    }
}

// === impl Health ===

impl Health {
    fn map(self, says: impl FnOnce(String) -> String) -> Self {
        match self {
            Self::Passing => Self::Passing,
            Self::Warning(why) => Self::Warning(says(why)),
            Self::Outage(why) => Self::Outage(says(why)),
            Self::Misconfigured(why) => Self::Misconfigured(says(why)),
        }
    }

    fn join(self, other: Self) -> Self {
        let both = |here, there| format!("{here}; {there}");
        match (self, other) {
            (Self::Warning(here), Self::Warning(there)) => Self::Warning(both(here, there)),
            (Self::Outage(here), Self::Outage(there)) => Self::Outage(both(here, there)),
            (Self::Misconfigured(here), Self::Misconfigured(there)) => {
                Self::Misconfigured(both(here, there))
            }
            (here, there) if here.severity() < there.severity() => there,
            (here, _) => here,
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
            let findings = findings.iter().map(|finding| (*finding).clone());
            findings.fold(Health::Passing, Health::join)
        };
        assert_eq!(joined(&[&Health::Passing, &warning]), warning);
        assert_eq!(joined(&[&outage, &warning, &Health::Passing]), outage);
        assert_eq!(joined(&[&warning, &outage, &wrong, &outage]), wrong);
        assert_eq!(
            joined(&[&outage, &outage]),
            Health::Outage("o; o".to_owned())
        );
    }
}
