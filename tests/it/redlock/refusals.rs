//! Nodes that run but refuse: full disk, too many clients, changed password. A minority of such nodes has no effect;
//! with a majority nothing is granted and nothing is lost.

use std::{fs, path::PathBuf};

use bb8_redis::redis::aio::MultiplexedConnection;

use super::logins::{COMMANDS, store_as};
use crate::redlock::prelude::*;

/// The reason for which a node refuses.
#[derive(Clone, Copy)]
enum RefusalCause {
    FullDisk,
    TooManyClients,
    PasswordTakenBack,
}

/// An operator of a node, who has connected before the trouble begins.
struct Operator<'a> {
    server: &'a RedisServer,
    connection: MultiplexedConnection,
}

/// Ten times the pause between two tries.
const SOON: Duration = Duration::from_secs(10);

// === impl RefusalCause ===

impl RefusalCause {
    /// The name of the check that reports the reason.
    fn check(self) -> &'static str {
        match self {
            Self::FullDisk | Self::TooManyClients => "connection",
            Self::PasswordTakenBack => "permissions",
        }
    }
}

// === impl Operator ===

impl<'a> Operator<'a> {
    async fn connect(server: &'a RedisServer) -> Self {
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

    /// The file to which the server saves its data.
    fn dump(&self) -> PathBuf {
        self.server.directory().join("dump.rdb")
    }

    /// Makes the server save its data, with this result.
    async fn save(&self, outcome: &str) {
        self.run(&["BGSAVE"]).await;
        let told = format!("rdb_last_bgsave_status:{outcome}");
        until("it has tried to save", async || {
            let info = self.run(&["INFO", "persistence"]).await;
            let info: String = from_redis_value(info).unwrap();
            let is_over = info.contains("rdb_bgsave_in_progress:0");
            is_over && info.contains(&told)
        })
        .await;
    }
}

async fn at_one_node_and_then_at_a_majority(rig: &Rig, trouble: RefusalCause) {
    let first = Operator::connect(rig.server(0)).await;
    let last = Operator::connect(rig.server(2)).await;
    let (held, lease) = rig.grant_everywhere("held").await;
    let mut fence = rig.turn("lock").await;

    first.bring(trouble).await;
    for _ in 0..5 {
        let next = rig.turn("lock").await;
        assert!(next > fence, "{next} after {fence}");
        fence = next;
    }
    rig.keeps(&held, &lease).await;
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
    assert_unavailable(rig.store.acquire(&attempt("lock")).await);
    assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
    until_integer(rig.server(1), &["EXISTS", "lg:{lock}:lock"], 0).await;
    let renewal = rig.store.renew(&held.name, &held.token, None).await;
    assert!(renewal.is_err(), "{renewal:?}");
    until("it is said of the quorum", async || {
        let health = rig.health(trouble.check()).await;
        matches!(health, Health::Outage(_) | Health::Misconfigured(_))
    })
    .await;

    first.mend(trouble).await;
    last.mend(trouble).await;
    let next = attempt("lock");
    let granted = rig.store.until_granted(&next).await;
    assert!(granted.fence.get() > fence);
    until("all is well", async || {
        rig.health(trouble.check()).await == Health::Passing
    })
    .await;
    rig.keeps(&held, &lease).await;
    for attempt in [&held, &next] {
        rig.release_everywhere(attempt).await;
    }
}

#[tokio::test]
async fn nodes_whose_disk_is_full_or_that_have_too_many_clients_refuse_until_there_is_room() {
    for trouble in [RefusalCause::FullDisk, RefusalCause::TooManyClients] {
        at_one_node_and_then_at_a_majority(&Rig::start(3).await, trouble).await;
    }
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
    let expected = matches!(&refused, Err(StoreError::ForeignData { key, found }) if key == "lg:{layout}:info" && found.contains("version \"9\""));
    assert!(expected, "{refused:?}");
}

#[tokio::test]
async fn those_that_evict_do_not_vote_and_what_is_held_is_renewed_and_released() {
    let rig = Rig::start(3).await;
    let (held, _) = rig.grant_everywhere("held").await;
    let policy = async |node: usize, policy: &str| {
        for setting in [["maxmemory", "100mb"], ["maxmemory-policy", policy]] {
            let set = ["CONFIG", "SET", setting[0], setting[1]];
            rig.server(node).run(&set).await;
        }
    };
    policy(0, "allkeys-lru").await;
    rig.store.check().await;
    rig.turn("lock").await;
    policy(2, "volatile-ttl").await;
    eventually("there is no majority that may be relied on", async || {
        rig.store.check().await;
        let asked = attempt("lock");
        match rig.store.acquire(&asked).await {
            Err(StoreError::Unavailable(_)) => Some(()),
            Ok(Acquisition::Granted(_)) => {
                rig.release(&asked).await;
                None
            }
            other => panic!("{other:?}"),
        }
    })
    .await;
    rig.store.must_renew(&held, None).await;
    rig.release(&held).await;
    policy(2, "noeviction").await;
    let next = attempt("lock");
    eventually("there is one again", async || {
        rig.store.check().await;
        rig.store.acquire(&next).await.ok()
    })
    .await;
    rig.release(&next).await;
}

#[tokio::test]
async fn a_majority_that_was_emptied_has_forgotten_leases_and_grants_no_old_fence() {
    let rig = Rig::start(3).await;
    let (forgotten, lease) = rig.grant_everywhere("lock").await;
    for node in [0, 2] {
        rig.server(node).run(&["FLUSHALL"]).await;
    }
    // The lock at the third node alone does not prevent a grant.
    let next = attempt("lock");
    let granted = rig.grant(&next).await;
    assert!(granted.fence > lease.fence);
    rig.store.must_lose(&forgotten, Loss::HeldByAnother).await;
    rig.release(&next).await;
    assert!(rig.turn("lock").await > granted.fence.get());
}
