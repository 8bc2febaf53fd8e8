//! Faults of a quorum.

use tokio::time::{Duration, sleep};

use super::{Injector, plan::Blow};

/// Raises every counter of a server by an hour, or to an hour ahead of its time: a node that loses its data cannot
/// replace such counters by its clock.
const AHEAD: &str = "local time = redis.call('TIME')
local now, raised = time[1] * 1000000 + time[2], 0
for _, key in ipairs(redis.call('KEYS', 'lg:{*}:fence')) do
  local counter = math.max(now, tonumber(redis.call('GET', key)) or 0)
  redis.call('SET', key, string.format('%.0f', counter + 3600000000))
  raised = raised + 1
end
return raised";
/// How long the node takes part with raised counters.
const PART: Duration = Duration::from_millis(500);
/// How many seconds a clock steps forward: more than a visit lasts.
const STEP: i64 = 10;

// === impl Injector ===

impl Injector {
    /// Raises the counters of one node. When the other nodes have learned of them by its votes, they must go on from
    /// there without this node.
    pub(super) async fn count_ahead(&mut self, blow: &Blow) {
        let place = blow.choice % self.rig.servers.len();
        let name = self.rig.servers[place].name.clone();
        let begun = self.begins(blow.fault, &name, false);
        let raised = self.rig.servers[place].run(&["EVAL", AHEAD, "0"]).await;
        sleep(PART).await;
        let frozen = self.rig.servers[place].process.freeze().await;
        sleep(blow.lasts).await;
        self.seen(&begun, u64::from(frozen && raised.is_ok()));
        self.rig.servers[place].process.thaw();
        self.heals(&begun);
    }

    /// Steps the clock of one node forward. Only a lease that a bare majority has may end because of this.
    pub(super) async fn step_clock(&mut self, blow: &Blow) {
        let place = blow.choice % self.rig.servers.len();
        let name = self.rig.servers[place].name.clone();
        let begun = self.begins(blow.fault, &name, true);
        let stepped = self.rig.servers[place].step_clock(STEP).await;
        self.seen(&begun, u64::from(stepped));
        self.heals(&begun);
    }
}
