//! Faults of a quorum.

use tokio::time::{Duration, sleep};

use super::{Injector, plan::Blow};

/// Raises every counter of a server by an hour, or so far beyond its time: what loses its data then cannot
/// make up for it by its clock.
const AHEAD: &str = "local time = redis.call('TIME')
local now, raised = time[1] * 1000000 + time[2], 0
for _, key in ipairs(redis.call('KEYS', 'lg:{*}:fence')) do
  local counter = math.max(now, tonumber(redis.call('GET', key)) or 0)
  redis.call('SET', key, string.format('%.0f', counter + 3600000000))
  raised = raised + 1
end
return raised";
/// For how long it takes part so.
const PART: Duration = Duration::from_millis(500);
/// By how many seconds a clock steps forward: longer than a visit lasts.
const STEP: i64 = 10;

// === impl Injector ===

impl Injector {
    /// Has one node count ahead. When the others have heard of it by its votes they must go on from there
    /// without it.
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

    /// Sets the clock of one node forward. A lease that no more than a bare majority has may be over by that, and
    /// only such a lease.
    pub(super) async fn step_clock(&mut self, blow: &Blow) {
        let place = blow.choice % self.rig.servers.len();
        let name = self.rig.servers[place].name.clone();
        let begun = self.begins(blow.fault, &name, true);
        let stepped = self.rig.servers[place].step_clock(STEP).await;
        self.seen(&begun, u64::from(stepped));
        self.heals(&begun);
    }
}
