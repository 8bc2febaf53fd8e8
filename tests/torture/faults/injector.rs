//! Injects the planned faults, and records what it observed of each.

use tokio::time::{Duration, Instant, sleep, sleep_until};

use super::{
    Fault,
    plan::{Blow, Plan},
};
use crate::{
    history::{Event, Stage},
    journal::Journal,
    resource::Registers,
    rig::{Clients, Kind, Rig},
};

/// Injects the faults of a plan.
pub(crate) struct Injector {
    pub(crate) rig: Rig,
    pub(crate) clients: Clients,
    pub(super) kind: Kind,
    pub(super) registers: Registers,
    journal: Journal,
    struck: u64,
}

/// A fault that has begun.
pub(super) struct Begun {
    id: u64,
    fault: Fault,
    target: String,
    forgets: bool,
}

/// The shortest pause before the next fault.
const BREATH: Duration = Duration::from_millis(700);

// === impl Injector ===

impl Injector {
    pub(crate) fn new(
        rig: Rig,
        clients: Clients,
        kind: Kind,
        registers: Registers,
        journal: Journal,
    ) -> Self {
        Self {
            rig,
            clients,
            kind,
            registers,
            journal,
            struck: 0,
        }
    }

    /// Injects the faults of a plan, until an instant.
    pub(crate) async fn go(&mut self, plan: &Plan, started: Instant, until: Instant) {
        for blow in &plan.blows {
            sleep_until(started + blow.at).await;
            if Instant::now() + blow.lasts > until {
                return;
            }
            self.strike(blow).await;
            sleep(BREATH).await;
        }
    }

    async fn strike(&mut self, blow: &Blow) {
        match blow.fault {
            Fault::KillGateway => self.kill_gateway(blow).await,
            Fault::StopGateway => self.stop_gateway(blow).await,
            Fault::FreezeGateway => self.freeze_gateway(blow).await,
            Fault::StallGateway => self.stall_gateway(blow).await,
            Fault::KillClient => self.kill_client(blow).await,
            Fault::FreezeClient => self.freeze_client(blow).await,
            Fault::KillRedis if self.has_replicas() => self.kill_master(blow).await,
            Fault::FreezeRedis if self.has_replicas() => self.freeze_master(blow).await,
            Fault::KillRedis => self.kill_redis(blow, false).await,
            Fault::LoseRedis => self.kill_redis(blow, true).await,
            Fault::FreezeRedis => self.freeze_redis(blow).await,
            Fault::Flush => self.flush(blow).await,
            Fault::ForgetScripts => self.again_and_again(blow, &["SCRIPT", "FLUSH"]).await,
            Fault::KillConnections => {
                self.again_and_again(blow, &["CLIENT", "KILL", "TYPE", "normal"])
                    .await;
            }
            Fault::KillSubscriptions => {
                self.again_and_again(blow, &["CLIENT", "KILL", "TYPE", "pubsub"])
                    .await;
            }
            Fault::Busy => self.busy(blow).await,
            Fault::OutOfMemory => self.out_of_memory(blow).await,
            Fault::Hold | Fault::CutReplies | Fault::CutRequests | Fault::Slice | Fault::Reset => {
                self.harm(blow).await;
            }
            Fault::FailOver => self.fail_over(blow).await,
            Fault::CountAhead => self.count_ahead(blow).await,
            Fault::StepClock => self.step_clock(blow).await,
            Fault::MoveSlot => self.move_slot(blow).await,
        }
    }

    /// Whether a replica takes over from a server that is gone.
    fn has_replicas(&self) -> bool {
        matches!(self.kind, Kind::Sentinel | Kind::Cluster)
    }

    /// The index of the server for a fault: one of those that accept writes.
    pub(super) async fn struck(&self, blow: &Blow) -> usize {
        let masters = self.rig.masters().await;
        masters[blow.choice % masters.len()]
    }

    /// Records the beginning of a fault, before the fault takes effect.
    pub(super) fn begins(&mut self, fault: Fault, target: &str, forgets: bool) -> Begun {
        self.struck += 1;
        let begun = Begun {
            id: self.struck,
            fault,
            target: target.to_owned(),
            forgets,
        };
        self.write(&begun, Stage::Begins);
        begun
    }

    /// Records how often the fault was observed to take effect.
    pub(super) fn seen(&self, begun: &Begun, times: u64) {
        if times > 0 {
            self.write(begun, Stage::Seen(times));
        }
    }

    /// Records the end of a fault.
    pub(super) fn heals(&self, begun: &Begun) {
        self.write(begun, Stage::Heals);
    }

    fn write(&self, begun: &Begun, stage: Stage) {
        self.journal.write(Event::Fault {
            fault: begun.id,
            kind: begun.fault.name().to_owned(),
            target: begun.target.clone(),
            forgets: begun.forgets,
            stage,
        });
    }
}
