//! Faults of a master with a replica: the replica takes over, and data that it does not have is lost.

use tokio::time::{Duration, Instant, sleep};

use super::{Injector, plan::Blow};
use crate::rig::{Kind, Redis};

/// The longest time of a failover.
const TIMEOUT: Duration = Duration::from_secs(30);
const OFTEN: Duration = Duration::from_millis(50);

/// The master after the fault.
#[derive(PartialEq, Eq)]
enum Settled {
    /// The replica that took over.
    Replaced,
    /// The former master.
    Back,
}

// === impl Injector ===

impl Injector {
    pub(super) async fn kill_master(&mut self, blow: &Blow) {
        let place = self.struck(blow).await;
        let name = self.rig.servers[place].name.clone();
        let begun = self.begins(blow.fault, &name, true);
        let killed = self.rig.servers[place].process.kill().await;
        self.seen(&begun, u64::from(killed));
        self.is_replaced(place).await;
        self.heals(&begun);
        self.rig.servers[place].start_again().await;
        if self.settled(place).await == Settled::Back {
            // Meanwhile the new master was replaced, too, and its data was lost.
            self.heals(&begun);
        }
    }

    /// Freezes the master until its replica has taken over.
    pub(super) async fn freeze_master(&mut self, blow: &Blow) {
        let place = self.struck(blow).await;
        let name = self.rig.servers[place].name.clone();
        let begun = self.begins(blow.fault, &name, true);
        let frozen = self.rig.servers[place].process.freeze().await;
        self.seen(&begun, u64::from(frozen));
        self.is_replaced(place).await;
        self.rig.servers[place].process.thaw();
        // Until it becomes a replica, the old master may accept writes, which are lost then.
        self.settled(place).await;
        self.heals(&begun);
    }

    pub(super) async fn fail_over(&mut self, blow: &Blow) {
        let place = self.struck(blow).await;
        let name = self.rig.servers[place].name.clone();
        let begun = self.begins(blow.fault, &name, true);
        self.rig.fail_over(place).await;
        let moved = self.is_replaced(place).await;
        self.seen(&begun, u64::from(moved));
        // Until it becomes a replica, the old master may accept writes, which are lost then.
        self.settled(place).await;
        self.heals(&begun);
    }

    /// Waits until another server is the master.
    async fn is_replaced(&self, place: usize) -> bool {
        let deadline = Instant::now() + TIMEOUT;
        while Instant::now() < deadline {
            if self.rig.is_replaced(place).await {
                return true;
            }
            sleep(OFTEN).await;
        }
        false
    }

    /// Waits until one of the two servers is a replica of the other, without which the next failover could not happen.
    /// On a busy machine a sentinel may replace the new master, too, before it has heard of it.
    async fn settled(&mut self, place: usize) -> Settled {
        let deadline = Instant::now() + TIMEOUT;
        let settled = loop {
            if follows(&self.rig.servers[place]).await {
                break Settled::Replaced;
            }
            if follows(self.rig.partner(place)).await {
                break Settled::Back;
            }
            assert!(
                Instant::now() < deadline,
                "neither of both follows the other"
            );
            sleep(OFTEN).await;
        };
        if self.kind == Kind::Cluster {
            self.rig.is_whole().await;
        }
        settled
    }
}

/// Whether a server is a replica with all data of its master.
async fn follows(server: &Redis) -> bool {
    let role = server.text(&["INFO", "replication"]).await;
    role.contains("role:slave") && role.contains("master_link_status:up")
}
