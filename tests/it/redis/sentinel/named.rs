//! Which sentinels a gateway believes, and which server it connects to.

use latchgate::config::ServersUrl;

use super::watched::url;
use crate::redis::prelude::*;

/// Two independent servers, fake sentinels, and a store.
pub(super) struct Named {
    pub(super) servers: [RedisServer; 2],
    sentinels: Vec<FakeSentinel>,
    pub(super) store: RedisStore,
}

/// The answer that the first server is the master.
const FIRST: fn(&Named) -> SentinelReply = |rig| SentinelReply::Master(rig.servers[0].port(), 1);
/// The answer that the second server is the master, with a later epoch.
const SECOND: fn(&Named) -> SentinelReply = |rig| SentinelReply::Master(rig.servers[1].port(), 2);

// === impl Named ===

impl Named {
    async fn start(sentinels: usize) -> Self {
        Self::start_with(sentinels, &config()).await
    }

    /// A store that the first server has already granted a lock.
    async fn serving(sentinels: usize) -> Self {
        let named = Self::start(sentinels).await;
        named.acquires_on(0, "first").await;
        named
    }

    pub(super) async fn start_with(sentinels: usize, config: &RedisConfig) -> Self {
        let servers = [RedisServer::start().await, RedisServer::start().await];
        let lifecycle = Lifecycle::new();
        let says = SentinelReply::Master(servers[0].port(), 1);
        let sentinels = join_all((0..sentinels).map(|_| FakeSentinel::start(says, &lifecycle)));
        let sentinels = sentinels.await;
        let url = url(sentinels.iter().map(FakeSentinel::node));
        let store = open_in(&url, config, &lifecycle);
        Self {
            servers,
            sentinels,
            store,
        }
    }

    /// The URL with the addresses of the sentinels.
    pub(super) fn url(&self) -> ServersUrl {
        url(self.sentinels.iter().map(FakeSentinel::node))
    }

    /// Makes all sentinels name the second server, and tells their subscribers.
    pub(super) fn hand_on(&self) {
        self.all_say(SECOND(self));
        for sentinel in &self.sentinels {
            sentinel.hint();
        }
    }

    fn all_say(&self, says: SentinelReply) {
        for sentinel in &self.sentinels {
            sentinel.say(says);
        }
    }

    /// Acquires a lock, which must be granted at this server, and releases it.
    async fn acquires_on(&self, server: usize, lock: &str) {
        let asked = self.store.must_hold(attempt(lock)).await;
        assert_holds(&self.servers[server], lock, &asked.token, "").await;
        self.store.must_release(&asked).await;
    }

    /// Waits until locks are granted at this server.
    async fn follows(&self, server: usize) {
        until("the other server is followed", async || {
            let acquired = self.store.acquire(&attempt("which")).await;
            let asked = self.servers[server].text(&["GET", "lg:{which}:lock"]).await;
            drop(self.store.break_lock(&name("which"), None).await);
            acquired.is_ok() && !asked.is_empty()
        })
        .await;
    }

    /// Waits until all sentinels were asked again: an older answer does not count for long.
    async fn all_were_asked(&self) {
        for sentinel in &self.sentinels {
            // A new connection to a sentinel begins with two questions and a greeting.
            let enough = sentinel.asked() + 4;
            until("they are asked", async || sentinel.asked() >= enough).await;
        }
    }

    /// Closes all client connections of a server.
    async fn hang_up(&self, server: usize) {
        for kind in ["normal", "pubsub"] {
            let kill = ["CLIENT", "KILL", "TYPE", kind];
            self.servers[server].run(&kill).await;
        }
    }
}

fn config() -> RedisConfig {
    let mut config = quick();
    config.sentinel.timeout_ms = Millis(800);
    config
}

#[tokio::test]
async fn the_master_that_is_named_has_the_locks() {
    let rig = Named::serving(3).await;
    let checks = rig.store.check().await;
    let master = checks.iter().find(|found| found.name == "master");
    let master = master.unwrap().note.clone().unwrap();
    assert!(master.starts_with("the same since "), "{master}");
    // Every caller may ask for this text, so it contains no address.
    assert!(!master.contains("127.0.0.1"), "{master}");
    until_passing(&rig.store, "sentinels").await;
    let figures = rig.store.figures();
    let (node, since) = figures.master.unwrap();
    assert_eq!(node, format!("127.0.0.1:{}", rig.servers[0].port()));
    assert!(since > 1.7e9, "{since}");
    assert_eq!(figures.master_changes, Some(0));
    assert!(figures.sentinels.iter().all(|(_, answers)| *answers));
    assert_eq!(figures.sentinels.len(), 3);
}

#[tokio::test]
async fn a_master_that_was_demoted_is_left_although_its_connections_live() {
    let rig = Named::serving(1).await;
    let [first, second] = &rig.servers;
    let port = second.port().to_string();
    first.run(&["REPLICAOF", "127.0.0.1", &port]).await;
    rig.all_say(SECOND(&rig));
    // A replica refuses a command without an effect, so this error is the worst that a caller is told.
    eventually("it is served", async || {
        match rig.store.acquire(&attempt("next")).await {
            Err(StoreError::Unavailable(_)) => None,
            other => Some(granted(other)),
        }
    })
    .await;
    rig.acquires_on(1, "after").await;
    assert_eq!(rig.store.figures().master_changes, Some(1));
}

#[tokio::test]
async fn a_sentinel_that_names_a_replica_leads_nobody_there() {
    let rig = Named::start(3).await;
    let [first, second] = &rig.servers;
    let port = first.port().to_string();
    rig.acquires_on(0, "a").await;
    second.run(&["REPLICAOF", "127.0.0.1", &port]).await;
    // One sentinel claims to know a later epoch than the others.
    rig.sentinels[0].say(SentinelReply::Master(second.port(), 99));
    rig.all_were_asked().await;
    for lock in ["b", "c", "d"] {
        rig.hang_up(0).await;
        rig.acquires_on(0, lock).await;
    }
    assert_eq!(rig.store.figures().master_changes, Some(0));
}

#[tokio::test]
async fn a_sentinel_that_has_missed_a_failover_leads_nobody_back() {
    let rig = Named::serving(3).await;
    rig.all_say(SECOND(&rig));
    rig.follows(1).await;
    // The other sentinels are gone, and the deposed master still believes that it is the master.
    rig.sentinels[0].say(FIRST(&rig));
    rig.sentinels[1].say(SentinelReply::Nothing);
    rig.sentinels[2].say(SentinelReply::Nothing);
    rig.all_were_asked().await;
    for lock in ["b", "c", "d"] {
        rig.hang_up(1).await;
        rig.acquires_on(1, lock).await;
    }
    // An older epoch is believed if more than half of the sentinels repeat it: their state may have been created again.
    // In the first seconds it may just be a failover of which they have not heard.
    rig.sentinels[1].say(FIRST(&rig));
    rig.hang_up(1).await;
    rig.acquires_on(1, "e").await;
    rig.follows(0).await;
}

#[tokio::test]
async fn a_master_that_most_have_deposed_is_not_gone_back_to() {
    let rig = Named::serving(3).await;
    // Most sentinels name a server that does not exist, and one has missed the change.
    let nobody = free_port();
    rig.sentinels[0].say(SentinelReply::Master(nobody, 2));
    rig.sentinels[1].say(SentinelReply::Master(nobody, 2));
    until("it is left", async || rig.store.figures().master.is_none()).await;
    let changes = rig.store.figures().master_changes;
    rig.all_were_asked().await;
    // The old server is not followed while the others say so, nor when only the sentinel is left that has missed the
    // change.
    rig.sentinels[0].say(SentinelReply::Nothing);
    rig.sentinels[1].say(SentinelReply::Nothing);
    rig.all_were_asked().await;
    assert_unavailable(rig.store.acquire(&attempt("b")).await);
    assert_eq!(rig.store.figures().master_changes, changes);
}

#[tokio::test]
async fn a_failover_is_followed_when_most_sentinels_have_seen_it() {
    let rig = Named::serving(3).await;
    rig.sentinels[2].say(SECOND(&rig));
    rig.all_were_asked().await;
    rig.acquires_on(0, "a").await;
    rig.sentinels[1].say(SECOND(&rig));
    rig.follows(1).await;
    rig.acquires_on(1, "b").await;
    // The store subscribes to the other server, although the first server has closed no connection.
    eventually("it listens to the other server", async || {
        let at = [&rig.servers[0], &rig.servers[1]].map(subscribers);
        let [before, now] = join_all(at).await[..] else {
            return None;
        };
        ((before, now) == (0, 1)).then_some(())
    })
    .await;
}

/// How long a server that few sentinels name must have no rival before it is followed.
const PATIENCE: Duration = Duration::from_secs(2);

#[tokio::test]
async fn sentinels_of_which_no_majority_agrees_lead_nobody_away_from_a_master() {
    let rig = Named::serving(2).await;
    rig.sentinels[1].say(SECOND(&rig));
    let differ = "2 of 2 answer; they name different masters";
    until_health(&rig.store, "sentinels", Health::Warning, differ).await;
    for lock in ["a", "b", "c"] {
        rig.hang_up(0).await;
        rig.acquires_on(0, lock).await;
    }
    assert_eq!(rig.store.figures().master_changes, Some(0));
    // A gateway that starts now cannot know which of the two masters is right.
    let next = open_with(&rig.url(), &config());
    let start = Instant::now();
    while start.elapsed() < PATIENCE + PATIENCE / 2 {
        assert_unavailable(next.acquire(&attempt("next")).await);
    }
    // The first server says that it is no master any more.
    let port = rig.servers[1].port().to_string();
    let demote = ["REPLICAOF", "127.0.0.1", &port];
    rig.servers[0].run(&demote).await;
    rig.follows(1).await;
    until_answered(&next, "next").await;
    rig.sentinels[0].say(SECOND(&rig));
    until_passing(&rig.store, "sentinels").await;
}

#[tokio::test]
async fn the_latest_epoch_of_few_sentinels_is_followed_when_no_other_master_is_reached_for_a_while()
{
    for frozen in [false, true] {
        let mut rig = Named::serving(2).await;
        rig.sentinels[1].say(SECOND(&rig));
        rig.all_were_asked().await;
        rig.acquires_on(0, "a").await;
        let lost = Instant::now();
        if frozen {
            rig.servers[0].freeze();
        } else {
            rig.servers[0].kill();
        }
        rig.follows(1).await;
        assert!(lost.elapsed() >= PATIENCE, "{:?}", lost.elapsed());
    }
}

#[tokio::test]
async fn sentinels_that_have_lost_their_epoch_are_believed_again_in_the_next_failover() {
    let rig = Named::start(3).await;
    rig.all_say(SentinelReply::Master(rig.servers[0].port(), 9));
    rig.acquires_on(0, "a").await;
    // The sentinels were made again. No answer shows that the gateway believes the lower epoch, five seconds later.
    rig.all_say(SentinelReply::Master(rig.servers[0].port(), 0));
    sleep(Duration::from_secs(7)).await;
    rig.all_say(SentinelReply::Master(rig.servers[1].port(), 1));
    let said = Instant::now();
    rig.follows(1).await;
    assert!(
        said.elapsed() < Duration::from_secs(4),
        "{:?}",
        said.elapsed()
    );
}

#[tokio::test]
async fn a_master_is_left_that_more_than_half_have_deposed_although_the_next_is_not_there_yet() {
    let rig = Named::serving(3).await;
    let nobody = free_port();
    rig.all_say(SentinelReply::Master(nobody, 2));
    // The outcome of commands that were on their way to the deposed master is unknown.
    eventually("it is refused", async || {
        rig.store.acquire(&attempt("b")).await.err()
    })
    .await;
    // The store may notice a closed connection before it knows that there is no master.
    until_health(&rig.store, "master", Health::Outage, "").await;
    assert_unavailable(rig.store.acquire(&attempt("c")).await);
    let wrote = rig.servers[0].text(&["GET", "lg:{c}:lock"]).await;
    assert_eq!(wrote, "", "the deposed master has not heard of it");
    rig.all_say(SECOND(&rig));
    rig.follows(1).await;
}

#[tokio::test]
async fn without_sentinels_the_master_is_used_as_long_as_its_process_lives() {
    let mut rig = Named::serving(3).await;
    rig.all_say(SentinelReply::Nothing);
    eventually("nobody answers", async || {
        match health(&rig.store, "sentinels").await {
            Some(Health::Warning(why)) => {
                assert!(!why.contains("127.0.0.1"), "{why}");
                why.starts_with("0 of 3 answer").then_some(())
            }
            _ => None,
        }
    })
    .await;
    // The store connects again, to the same run of the server.
    rig.hang_up(0).await;
    rig.acquires_on(0, "b").await;
    // After a restart, the server may have been replaced meanwhile without the gateway's knowledge.
    rig.servers[0].kill();
    rig.servers[0].start_again().await;
    match rig.store.acquire(&attempt("c")).await {
        Err(StoreError::Unavailable(Unavailability::Connect(why))) => {
            assert!(why.contains("started again"), "{why}");
        }
        other => panic!("{other:?}"),
    }
    rig.sentinels[1].say(FIRST(&rig));
    rig.follows(0).await;
}

#[tokio::test]
async fn a_service_that_no_sentinel_knows_is_a_mistake_in_the_configuration() {
    let rig = Named::start(2).await;
    rig.all_say(SentinelReply::NoSuchService);
    let store = open_with(&rig.url(), &config());
    let refused = store.acquire(&attempt("a")).await;
    assert_misconfigured(refused, "knows no service \"locks\"");
    // One sentinel that knows the service is enough.
    rig.sentinels[1].say(FIRST(&rig));
    until_answered(&store, "b").await;
}

#[tokio::test]
async fn a_hint_is_followed_without_waiting_for_the_next_question() {
    let rig = Named::serving(1).await;
    until_passing(&rig.store, "sentinels").await;
    // Each change is announced just after the previous one was followed: the next regular question is a second away.
    let [mut hinted, mut unhinted] = [Duration::ZERO; 2];
    for epoch in 2..14 {
        let next = usize::from(epoch % 2 == 0);
        rig.all_say(SentinelReply::Master(rig.servers[next].port(), epoch));
        let told = Instant::now();
        let is_hinted = epoch < 8;
        if is_hinted {
            rig.sentinels[0].hint();
        }
        let node = format!("127.0.0.1:{}", rig.servers[next].port());
        eventually("it is followed", async || {
            let (master, _) = rig.store.figures().master?;
            (master == node).then_some(())
        })
        .await;
        *(if is_hinted {
            &mut hinted
        } else {
            &mut unhinted
        }) += told.elapsed();
    }
    assert!(hinted < unhinted / 2, "{hinted:?}, else {unhinted:?}");
}

#[tokio::test]
async fn what_is_held_goes_on_over_a_new_connection_to_the_same_master() {
    let rig = Named::start(2).await;
    let held = rig.store.must_hold(attempt("held")).await;
    rig.hang_up(0).await;
    rig.store.must_renew(&held, None).await;
    rig.store.must_release(&held).await;
}

/// Much longer than the gateway waits for the other sentinels when most have answered, and much shorter than one answer
/// may take.
const SLOW: Duration = Duration::from_millis(400);

async fn answering(store: &RedisStore, wanted: [bool; 3]) {
    until("it is known which sentinels answer", async || {
        let sentinels = store.figures().sentinels;
        let answer = sentinels.iter().map(|(_, answers)| *answers);
        answer.eq(wanted)
    })
    .await;
}

#[tokio::test]
async fn one_that_is_back_and_slow_is_not_said_to_be_away() {
    let config = with(quick(), |it| it.sentinel.timeout_ms = Millis(10_000));
    let rig = Named::start_with(3, &config).await;
    let (store, sentinels, says) = (&rig.store, &rig.sentinels, FIRST(&rig));
    granted(store.acquire(&attempt("a")).await);
    answering(store, [true; 3]).await;
    sentinels[2].say(SentinelReply::Nothing);
    answering(store, [true, true, false]).await;

    sentinels[2].think(SLOW);
    sentinels[2].say(says);
    answering(store, [true; 3]).await;
    // The state is reported with a delay of at most a second.
    until_passing(store, "sentinels").await;
    // The sentinel goes away again, and is slow to close the connection.
    sentinels[2].say(SentinelReply::Nothing);
    answering(store, [true, true, false]).await;
}
