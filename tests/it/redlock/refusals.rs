//! Nodes that are there and refuse: their disk is full, they have too many clients, the password is taken
//! back. At one of them it costs nothing, at a majority nothing is granted and nothing lost.

use std::{fs, path::PathBuf, time::Duration};

use bb8_redis::redis::{Value, aio::MultiplexedConnection, from_redis_value};
use latchgate::{
    lifecycle::Lifecycle,
    lock::HeldLease,
    store::{
        Store, StoreError,
        contract::{Acquisition, Attempt, Health, Renewal},
    },
};
use tokio::time::Instant;

use super::{
    logins::{COMMANDS, store_as},
    nodes::Nodes,
    rig::{Rig, attempt, eventually},
};
use crate::support::{RedisServer, cmd};

/// Why a node refuses.
#[derive(Clone, Copy)]
enum RefusalCause {
    FullDisk,
    TooManyClients,
    PasswordTakenBack,
}

/// Whoever looks after a node. It is connected to it before there is any trouble.
struct Operator<'a> {
    server: &'a RedisServer,
    connection: MultiplexedConnection,
}

/// Ten times as long as it is tried again.
const SOON: Duration = Duration::from_secs(10);

// === impl RefusalCause ===

impl RefusalCause {
    /// The check that finds it.
    fn check(self) -> &'static str {
        match self {
            Self::FullDisk | Self::TooManyClients => "connection",
            Self::PasswordTakenBack => "permissions",
        }
    }
}

// === impl Operator ===

impl<'a> Operator<'a> {
    async fn of(server: &'a RedisServer) -> Self {
        let connection = server.connection().await;
        Self { server, connection }
    }

    async fn run(&self, command: &[&str]) -> Value {
        let mut connection = self.connection.clone();
        let reply = connection.send_packed_command(&cmd(command)).await;
        let reply = reply.unwrap();
        assert!(!matches!(reply, Value::ServerError(_)), "{reply:?}");
        reply
    }

    async fn bring(&self, trouble: RefusalCause) {
        match trouble {
            RefusalCause::FullDisk => {
                fs::create_dir(self.dump()).unwrap();
                self.run(&["CONFIG", "SET", "save", "3600 1"]).await;
                self.save("err").await;
            }
            RefusalCause::TooManyClients => {
                self.run(&["CONFIG", "SET", "maxclients", "1"]).await;
                self.run(&["CLIENT", "KILL", "TYPE", "normal"]).await;
            }
            RefusalCause::PasswordTakenBack => {
                self.run(&["ACL", "SETUSER", "gate", "resetpass", ">an0ther"])
                    .await;
                self.run(&["CLIENT", "KILL", "USER", "gate"]).await;
            }
        }
    }

    async fn mend(&self, trouble: RefusalCause) {
        match trouble {
            RefusalCause::FullDisk => {
                fs::remove_dir(self.dump()).unwrap();
                self.save("ok").await;
            }
            RefusalCause::TooManyClients => {
                self.run(&["CONFIG", "SET", "maxclients", "100"]).await;
            }
            RefusalCause::PasswordTakenBack => {
                self.run(&["ACL", "SETUSER", "gate", "resetpass", ">s3cret"])
                    .await;
            }
        }
    }

    /// Where the server saves its data.
    fn dump(&self) -> PathBuf {
        self.server.directory().join("dump.rdb")
    }

    /// Lets the server save its data, with this outcome.
    async fn save(&self, outcome: &str) {
        self.run(&["BGSAVE"]).await;
        let told = format!("rdb_last_bgsave_status:{outcome}");
        eventually("it has tried to save", async || {
            let info = self.run(&["INFO", "persistence"]).await;
            let info: String = from_redis_value(info).unwrap();
            let is_over = info.contains("rdb_bgsave_in_progress:0");
            (is_over && info.contains(&told)).then_some(())
        })
        .await;
    }
}

async fn is_renewed(rig: &Rig, held: &Attempt, lease: &HeldLease) {
    let renewal = rig.store.renew(&held.name, &held.token, None).await;
    assert!(
        matches!(&renewal, Ok(Renewal::Renewed(now, _)) if now.fence == lease.fence),
        "{renewal:?}"
    );
}

async fn at_one_node_and_then_at_a_majority(rig: &Rig, trouble: RefusalCause) {
    let first = Operator::of(rig.server(0)).await;
    let last = Operator::of(rig.server(2)).await;
    let (held, lease) = rig.grant_everywhere("held").await;
    let mut fence = rig.turn("lock").await;

    first.bring(trouble).await;
    for _ in 0..5 {
        let next = rig.turn("lock").await;
        assert!(next > fence, "{next} after {fence}");
        fence = next;
    }
    is_renewed(rig, &held, &lease).await;
    let port = rig.server(0).port().to_string();
    eventually("it is said of that node", async || {
        match rig.health(trouble.check()).await {
            Health::Warning(why) => why.contains(&port).then_some(()),
            _ => None,
        }
    })
    .await;

    last.bring(trouble).await;
    let start = Instant::now();
    let error = rig.store.acquire(&attempt("lock")).await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
    assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
    eventually("what the other has reserved is withdrawn", async || {
        let reserved = rig.server(1).text(&["GET", "lg:{lock}:lock"]).await;
        reserved.is_empty().then_some(())
    })
    .await;
    let renewal = rig.store.renew(&held.name, &held.token, None).await;
    assert!(renewal.is_err(), "{renewal:?}");
    eventually("it is said of the quorum", async || {
        let health = rig.health(trouble.check()).await;
        matches!(health, Health::Outage(_) | Health::Misconfigured(_)).then_some(())
    })
    .await;

    first.mend(trouble).await;
    last.mend(trouble).await;
    let next = attempt("lock");
    let granted = eventually("it is granted again", async || {
        match rig.store.acquire(&next).await {
            Ok(Acquisition::Granted(lease)) => Some(lease),
            _ => None,
        }
    })
    .await;
    assert!(granted.fence.get() > fence);
    eventually("all is well", async || {
        (rig.health(trouble.check()).await == Health::Passing).then_some(())
    })
    .await;
    is_renewed(rig, &held, &lease).await;
    for attempt in [&held, &next] {
        rig.release(attempt).await;
        rig.nothing_left(&attempt.name).await;
    }
}

#[tokio::test]
async fn nodes_whose_disk_is_full_refuse_until_there_is_room() {
    let rig = Rig::start(3).await;
    at_one_node_and_then_at_a_majority(&rig, RefusalCause::FullDisk).await;
}

#[tokio::test]
async fn nodes_with_too_many_clients_cannot_be_reached_until_there_is_room() {
    let rig = Rig::start(3).await;
    at_one_node_and_then_at_a_majority(&rig, RefusalCause::TooManyClients).await;
}

#[tokio::test]
async fn nodes_at_which_the_password_is_taken_back_have_no_vote_until_it_is_right_again() {
    let (nodes, lifecycle) = (Nodes::start(3).await, Lifecycle::new());
    let rules = format!("~lg:* resetchannels &lg:* -@all {COMMANDS}");
    let store = store_as(&nodes, &rules, &lifecycle).await;
    let rig = Rig {
        nodes,
        store,
        lifecycle,
    };
    rig.all_vote().await;
    at_one_node_and_then_at_a_majority(&rig, RefusalCause::PasswordTakenBack).await;
}

#[tokio::test]
async fn a_record_of_another_layout_is_named_to_whoever_asks_for_the_lock() {
    let rig = Rig::start(3).await;
    for server in &rig.nodes.servers {
        server.run(&["HSET", "lg:{layout}:info", "v", "9"]).await;
    }
    let refused = rig.store.acquire(&attempt("layout")).await;
    assert!(
        matches!(&refused, Err(StoreError::ForeignData { key, found })
            if key == "lg:{layout}:info" && found.contains("version \"9\"")),
        "{refused:?}"
    );
}
