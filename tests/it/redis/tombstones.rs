//! How many memories of ended leases a name keeps.

use latchgate::store::{Store, contract::Release};

use super::{leases::keyed, rig::Rig};

const LEASES: usize = 100;

#[tokio::test]
async fn each_lasts_a_minute_and_there_are_two_of_a_lease_with_a_key() {
    let rig = Rig::start().await;
    for lease in 0..LEASES {
        let attempt = keyed("busy", &lease.to_string());
        rig.grant(&attempt).await;
        let released = rig.store.release(&attempt.name, &attempt.token).await;
        assert_eq!(released.unwrap(), Release::Released);
    }
    let mut memories = rig.server.keys().await;
    memories.retain(|key| !key.ends_with(":fence"));
    assert_eq!(memories.len(), 2 * LEASES);
    for key in memories {
        let left = rig.server.integer(&["PTTL", &key]).await;
        assert!((0..=60_000).contains(&left), "{key}: {left}");
    }
}
