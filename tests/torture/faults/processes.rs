//! Faults of gateways and of clients.

use rustix::process::Signal;
use tokio::time::{Duration, Instant, sleep};

use super::{Fault, Injector, plan::Blow};

/// The length of each stop of a stalled gateway: less than any TTL of a client, and longer than the margin of a client
/// for the travel of an answer.
const STALL: Duration = Duration::from_millis(600);
/// How long the gateway runs between two stops.
const RUNS: Duration = Duration::from_millis(150);
/// How long to look for a client in the middle of a change.
const TIMEOUT: Duration = Duration::from_secs(3);

// === impl Injector ===

impl Injector {
    pub(super) async fn kill_gateway(&mut self, blow: &Blow) {
        let place = blow.choice % self.rig.gateways.len();
        let name = self.rig.gateways[place].name.clone();
        let begun = self.begins(blow.fault, &name, false);
        let killed = self.rig.gateways[place].process.kill().await;
        self.seen(&begun, u64::from(killed));
        sleep(blow.lasts).await;
        self.rig.gateways[place].start_again().await;
        self.heals(&begun);
    }

    pub(super) async fn stop_gateway(&mut self, blow: &Blow) {
        let place = blow.choice % self.rig.gateways.len();
        let name = self.rig.gateways[place].name.clone();
        let begun = self.begins(blow.fault, &name, false);
        let process = &mut self.rig.gateways[place].process;
        let lived = !process.has_ended();
        process.signal(Signal::TERM);
        process.ended().await;
        self.seen(&begun, u64::from(lived));
        self.rig.gateways[place].start_again().await;
        self.heals(&begun);
    }

    pub(super) async fn freeze_gateway(&mut self, blow: &Blow) {
        let place = blow.choice % self.rig.gateways.len();
        let name = self.rig.gateways[place].name.clone();
        let begun = self.begins(blow.fault, &name, false);
        let frozen = self.rig.gateways[place].process.freeze().await;
        sleep(blow.lasts).await;
        self.seen(&begun, u64::from(frozen));
        self.rig.gateways[place].process.thaw();
        self.heals(&begun);
    }

    /// Stops a gateway repeatedly, each time for less than the shortest TTL, and lets it run in between: it answers
    /// requests from before a stop after the stop.
    pub(super) async fn stall_gateway(&mut self, blow: &Blow) {
        let place = blow.choice % self.rig.gateways.len();
        let name = self.rig.gateways[place].name.clone();
        let begun = self.begins(blow.fault, &name, false);
        let until = Instant::now() + blow.lasts;
        let mut stops = 0;
        while Instant::now() < until {
            let process = &mut self.rig.gateways[place].process;
            stops += u64::from(process.freeze().await);
            sleep(STALL).await;
            process.thaw();
            sleep(RUNS).await;
        }
        self.seen(&begun, stops);
        self.heals(&begun);
    }

    pub(super) async fn kill_client(&mut self, blow: &Blow) {
        let place = blow.choice % self.clients.processes.len();
        let name = self.clients.processes[place].0.clone();
        let begun = self.begins(blow.fault, &name, false);
        let killed = self.clients.processes[place].1.kill().await;
        self.seen(&begun, u64::from(killed));
        self.clients.replace(place);
        self.heals(&begun);
    }

    /// Freezes a client in the middle of a change, for longer than its lease lives.
    pub(super) async fn freeze_client(&mut self, blow: &Blow) {
        let deadline = Instant::now() + TIMEOUT;
        let place = loop {
            let inside = self.registers.anybody_inside(blow.choice);
            let of_name = |name: &String| {
                let mut processes = self.clients.processes.iter();
                processes.position(|(client, _)| client == name)
            };
            if let Some(place) = inside.as_ref().and_then(of_name) {
                break place;
            }
            if Instant::now() > deadline {
                break blow.choice % self.clients.processes.len();
            }
            sleep(Duration::from_millis(1)).await;
        };
        let name = self.clients.processes[place].0.clone();
        let begun = self.begins(Fault::FreezeClient, &name, false);
        let mut caught = false;
        while !caught && Instant::now() < deadline {
            let process = &mut self.clients.processes[place].1;
            let frozen = process.freeze().await;
            // The client's last request to the registers may still be on its way.
            sleep(Duration::from_millis(20)).await;
            caught = frozen && self.registers.is_inside(&name);
            if !caught {
                process.thaw();
                sleep(Duration::from_millis(3)).await;
            }
        }
        sleep(blow.lasts).await;
        self.seen(&begun, u64::from(caught));
        self.clients.processes[place].1.thaw();
        self.heals(&begun);
    }
}
