//! Faults of a Redis server.

use bb8_redis::redis::Value;
use tokio::time::{Duration, Instant, sleep};

use super::{Fault, Injector, plan::Blow};

/// The pause between repeated actions.
const OFTEN: Duration = Duration::from_millis(50);

// === impl Injector ===

impl Injector {
    /// Kills a server. After its restart it has all of its data, or with `forgets` none.
    pub(super) async fn kill_redis(&mut self, blow: &Blow, forgets: bool) {
        let place = self.struck(blow).await;
        let name = self.rig.servers[place].name.clone();
        let begun = self.begins(blow.fault, &name, forgets);
        let killed = self.rig.servers[place].process.kill().await;
        self.seen(&begun, u64::from(killed));
        if forgets {
            self.rig.servers[place].forget();
        }
        sleep(blow.lasts).await;
        self.rig.servers[place].start_again().await;
        self.heals(&begun);
    }

    pub(super) async fn freeze_redis(&mut self, blow: &Blow) {
        let place = self.struck(blow).await;
        let name = self.rig.servers[place].name.clone();
        let begun = self.begins(blow.fault, &name, false);
        let frozen = self.rig.servers[place].process.freeze().await;
        sleep(blow.lasts).await;
        self.seen(&begun, u64::from(frozen));
        self.rig.servers[place].process.thaw();
        self.heals(&begun);
    }

    pub(super) async fn flush(&mut self, blow: &Blow) {
        let place = self.struck(blow).await;
        let name = self.rig.servers[place].name.clone();
        let begun = self.begins(blow.fault, &name, true);
        let server = &self.rig.servers[place];
        let flushed = server.run(&["FLUSHALL"]).await.is_ok();
        let calls = server.text(&["INFO", "commandstats"]).await;
        let counted = flushed && calls.contains("cmdstat_flushall");
        self.seen(&begun, u64::from(counted));
        self.heals(&begun);
    }

    /// Runs a command repeatedly, and counts how often it took effect.
    pub(super) async fn again_and_again(&mut self, blow: &Blow, words: &[&str]) {
        let place = self.struck(blow).await;
        let name = self.rig.servers[place].name.clone();
        let begun = self.begins(blow.fault, &name, false);
        let places = match blow.fault {
            // A gateway subscribes at only one of several servers.
            Fault::KillSubscriptions => self.rig.masters().await,
            _ => vec![place],
        };
        let until = Instant::now() + blow.lasts;
        let mut times = 0;
        while Instant::now() < until {
            for &place in &places {
                times += match self.rig.servers[place].run(words).await {
                    Ok(Value::Int(killed)) => u64::try_from(killed).unwrap_or_default(),
                    Ok(_) => 1,
                    Err(_) => 0,
                };
            }
            sleep(OFTEN).await;
        }
        self.seen(&begun, times);
        self.heals(&begun);
    }

    /// Runs a script that does not end.
    pub(super) async fn busy(&mut self, blow: &Blow) {
        let place = self.struck(blow).await;
        let name = self.rig.servers[place].name.clone();
        let begun = self.begins(blow.fault, &name, false);
        let server = &self.rig.servers[place];
        let endless = server.run(&["EVAL", "while true do end", "0"]);
        let until = Instant::now() + blow.lasts;
        let end = async {
            let mut refused = 0;
            while Instant::now() < until {
                let busy = server
                    .run(&["PING"])
                    .await
                    .is_err_and(|it| it.code() == Some("BUSY"));
                refused += u64::from(busy);
                sleep(OFTEN).await;
            }
            while server.run(&["PING"]).await.is_err() {
                // The script can be killed only when the server counts as busy.
                drop(server.run(&["SCRIPT", "KILL"]).await);
                sleep(OFTEN).await;
            }
            refused
        };
        let (_killed, refused) = tokio::join!(endless, end);
        self.seen(&begun, refused);
        self.heals(&begun);
    }

    pub(super) async fn out_of_memory(&mut self, blow: &Blow) {
        let place = self.struck(blow).await;
        let name = self.rig.servers[place].name.clone();
        let begun = self.begins(blow.fault, &name, false);
        let server = &self.rig.servers[place];
        drop(server.run(&["CONFIG", "SET", "maxmemory", "1"]).await);
        let until = Instant::now() + blow.lasts;
        let mut refused = 0;
        while Instant::now() < until {
            // The command is refused because of its content, or before that because there is no memory.
            let probe = server.run(&["FUNCTION", "LOAD", "nothing"]).await;
            refused += u64::from(probe.is_err_and(|error| error.code() == Some("OOM")));
            sleep(OFTEN).await;
        }
        drop(server.run(&["CONFIG", "SET", "maxmemory", "0"]).await);
        self.seen(&begun, refused);
        self.heals(&begun);
    }
}
