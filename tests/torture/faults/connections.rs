//! Faults of the connections between a gateway and its Redis server.

use tokio::time::sleep;

use super::{Fault, Injector, plan::Blow};
use crate::rig::Harm;

// === impl Injector ===

impl Injector {
    /// Makes the proxy between a gateway and its server do harm.
    pub(super) async fn harm(&mut self, blow: &Blow) {
        let place = blow.choice % self.rig.proxies.len();
        let begun = self.begins(blow.fault, &format!("proxy-{place}"), false);
        let proxy = &self.rig.proxies[place];
        let before = proxy.done();
        proxy.does(match blow.fault {
            Fault::Hold => Harm::Hold,
            Fault::CutReplies => Harm::CutReply,
            Fault::CutRequests => Harm::CutRequest,
            Fault::Slice => Harm::Slice,
            _ => Harm::Reset,
        });
        sleep(blow.lasts).await;
        proxy.does(Harm::None);
        self.seen(&begun, proxy.done() - before);
        self.heals(&begun);
    }
}
