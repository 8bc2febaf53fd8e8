//! What readiness says of replicas, where grants wait for them.

use std::sync::Arc;

use bb8_redis::redis::{Cmd, Value};
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
            .have(&markers, Some(&markers.run), limit)
            .await;
        Some(match had {
            Ok(()) => Check {
                note: shard
                    .replicas
                    .confirmed()
                    .map(|count| format!("{count} confirm")),
                ..check(self.judge_spare(shard).await)
            },
            Err(confirmed) => {
                let why = too_few(shard, confirmed);
                check(Health::Outage(why.to_string()))
            }
        })
    }

    /// Whether locks can be granted after a failover. The new master was one of the replicas, so that it has
    /// one replica less.
    async fn judge_spare(&self, shard: &Arc<Shard>) -> Health {
        if !self.dispatch.topology.fails_over() {
            return Health::Passing;
        }
        let mut command = Cmd::new();
        command.arg("INFO").arg("replication");
        let Ok(Value::BulkString(info)) = self.dispatch.plain_to(shard, &command).await else {
            return Health::Passing;
        };
        let info = String::from_utf8_lossy(&info);
        let is_replica = |line: &&str| line.starts_with("slave") && line.contains("state=online");
        let (count, wanted) = (
            info.lines().filter(is_replica).count(),
            shard.replicas.wanted(),
        );
        if count > wanted as usize {
            return Health::Passing;
        }
        Health::Warning(format!(
            "the master has no more replicas than redis.wait_replicas asks for ({wanted}): after a failover no lock \
             is granted until there is another; add a replica"
        ))
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
    Check::new("replicas", health)
}
