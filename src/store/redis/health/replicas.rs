//! What readiness says of replicas, where grants wait for them.

use std::sync::Arc;

use tokio::time::Instant;

use crate::store::{
    Unavailability,
    contract::{Check, Health},
};

use super::{
    super::{
        Slot, SlotTags,
        client::{marker_connection::MarkerConnection, shard::Shard},
        keys::Keys,
    },
    examination::Examiner,
};

// === impl Examiner ===

impl Examiner {
    /// What readiness says of a server; nothing if replicas are not waited for.
    pub(super) async fn check_replicas(&self, shard: &Arc<Shard>) -> Option<Check> {
        let slot = self.dispatch.topology.some_slot(shard);
        let slot = slot.unwrap_or_else(|| Slot::of(Keys::MARKER.as_bytes()));
        let limit = Instant::now() + shard.replicas.longest();
        let markers = match marker_connection(shard, slot, &self.tags, limit).await {
            Ok(None) => return None,
            Ok(Some(markers)) => markers,
            Err(Unavailability::Misconfigured(why)) => {
                return Some(check(Health::Misconfigured(why)));
            }
            Err(why) => return Some(check(Health::Outage(why.to_string()))),
        };
        let limit = Instant::now() + shard.replicas.longest();
        let had = shard
            .replicas
            .have(&markers, Some(markers.run()), limit)
            .await;
        Some(match had {
            Ok(()) => Check {
                note: shard
                    .replicas
                    .confirmed()
                    .map(|count| format!("{count} confirm")),
                ..check(Health::Passing)
            },
            Err(confirmed) => {
                let why = too_few(shard, confirmed);
                check(Health::Outage(why.to_string()))
            }
        })
    }
}

/// The connection on which it will be found out which replicas have what is done in a slot from now on; `None` if
/// nobody waits for that.
pub(crate) async fn marker_connection(
    shard: &Shard,
    slot: Slot,
    tags: &SlotTags,
    limit: Instant,
) -> Result<Option<Arc<MarkerConnection>>, Unavailability> {
    let marker = || match shard.node() {
        Some(_one_of_a_cluster) => Keys::marker_in(slot, tags),
        None => Keys::MARKER.to_owned(),
    };
    let replicas = &shard.replicas;
    replicas.marker_connection(&shard.pool, marker, limit).await
}

/// Why a grant is not answered that too few replicas have.
pub(crate) fn too_few(shard: &Shard, confirmed: Option<u32>) -> Unavailability {
    let wanted = shard.replicas.wanted();
    Unavailability::TooFewReplicas { wanted, confirmed }
}

fn check(health: Health) -> Check {
    Check {
        name: "replicas",
        health,
        note: None,
        refuses_for: None,
    }
}
