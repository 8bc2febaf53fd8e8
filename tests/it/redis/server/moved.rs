//! An address that leads to another server while the first one still runs.

use crate::redis::prelude::*;

/// A store behind a proxy that leads to server `a`, and may lead to server `b`.
struct Moving {
    a: RedisServer,
    b: RedisServer,
    proxy: Proxy,
    store: RedisStore,
}

// === impl Moving ===

impl Moving {
    async fn start(connections: u32, config: RedisConfig) -> Self {
        let [a, b] = [RedisServer::start().await, RedisServer::start().await];
        let config = with(config, |it| it.connections = connections);
        let (proxy, store) = behind_proxy(&a, &config).await;
        let moving = Self { a, b, proxy, store };
        let all = usize::try_from(connections).unwrap() + 1;
        until("all connections are made", async || {
            granted(moving.store.acquire(&fresh()).await);
            let [commands, subscriptions] = connections_at(&moving.a).await;
            commands + subscriptions >= all && subscriptions == 1
        })
        .await;
        moving
    }

    /// Waits until the store has closed its connections to `a`.
    async fn left(&self) {
        let is_so = async || connections_at(&self.a).await == [0, 0];
        until("no connection leads to the first server", is_so).await;
    }

    /// Asserts that none of many locks is granted twice, and that each is granted at `b`.
    async fn assert_all_granted_once_at_b(&self) {
        for number in 0..216 {
            let lock = format!("name-{number}");
            let asked: Vec<_> = (0..8).map(|_| attempt(&lock)).collect();
            let answers = join_all(asked.iter().map(|asked| self.store.acquire(asked))).await;
            let granted = answers.iter().filter(|answer| is_granted(answer)).count();
            assert_eq!(granted, 1, "{lock}: {answers:?}");
            let key = format!("lg:{{{lock}}}:lock");
            assert_eq!(self.a.integer(&["EXISTS", &key]).await, 0, "{lock}");
            assert_eq!(self.b.integer(&["EXISTS", &key]).await, 1, "{lock}");
        }
    }
}

fn is_granted(answer: &Result<Acquisition, StoreError>) -> bool {
    matches!(answer, Ok(Acquisition::Granted(_)))
}

/// An attempt for a lock without other callers.
fn fresh() -> Attempt {
    attempt(&token().to_string())
}

/// How many connections of stores a server has for commands, and how many for subscriptions.
pub(crate) async fn connections_at(server: &RedisServer) -> [usize; 2] {
    let clients = server.text(&["CLIENT", "LIST"]).await;
    let of = |what: &str| clients.lines().filter(|line| line.contains(what)).count();
    // The connection of this question does not count.
    [of(" sub=0 ") - 1, clients.lines().count() - of(" sub=0 ")]
}

/// Closes a connection of a store: a subscription, or a connection for commands.
pub(crate) async fn kill_one(server: &RedisServer, listens: bool) {
    let clients = server.text(&["CLIENT", "LIST"]).await;
    let wanted = |line: &&str| line.contains(" sub=0 ") != listens;
    let mut lines = clients.lines().filter(wanted);
    let line = lines.find(|line| !line.contains(" cmd=client|list "));
    let id = line.and_then(|line| line.strip_prefix("id=")?.split(' ').next());
    let id = id.unwrap_or_else(|| panic!("there is such a connection: {clients}"));
    assert_eq!(server.integer(&["CLIENT", "KILL", "ID", id]).await, 1);
}

#[tokio::test]
async fn when_the_address_has_moved_no_lock_is_granted_at_two_servers() {
    let moving = Moving::start(4, patient()).await;
    moving.proxy.lead_to(moving.b.port());
    kill_one(&moving.a, false).await;
    moving.left().await;
    moving.assert_all_granted_once_at_b().await;
    assert_eq!(connections_at(&moving.a).await, [0, 0]);
}

#[tokio::test]
async fn a_subscription_that_is_lost_shows_that_the_address_of_the_only_connection_has_moved() {
    let moving = Moving::start(1, patient()).await;
    moving.proxy.lead_to(moving.b.port());
    kill_one(&moving.a, true).await;
    moving.left().await;
    moving.assert_all_granted_once_at_b().await;
    let is_so = async || connections_at(&moving.b).await[1] == 1;
    until("messages come from where locks are", is_so).await;
}

#[tokio::test]
async fn a_lost_connection_is_a_reason_to_look_at_once() {
    let moving = Moving::start(2, quick()).await;
    let mut took = Vec::new();
    let mut servers = [&moving.a, &moving.b];
    for _ in 0..5 {
        let [from, to] = servers;
        // The next regular check is two seconds away.
        let before = moving.proxy.connections();
        let is_so = async || moving.proxy.connections() > before;
        until("it has just looked", is_so).await;
        moving.proxy.lead_to(to.port());
        let since = Instant::now();
        kill_one(from, false).await;
        until("it has left", async || connections_at(from).await == [0, 0]).await;
        took.push(since.elapsed());
        servers.reverse();
        eventually("it has come", async || {
            moving.store.acquire(&fresh()).await.ok()?;
            let there = connections_at(to).await;
            (there[0] >= 2 && there[1] == 1).then_some(())
        })
        .await;
    }
    assert_most_precede_rounds(took);
}

#[tokio::test]
async fn an_idle_gateway_notices_that_the_address_has_moved_and_readiness_says_so() {
    let a = RedisServer::start().await;
    // The long uptime shows that this is another server, and not the first one after a restart.
    let clock = Clock::ahead(0);
    let b = RedisServer::start_on(clock.clone(), &[]).await;
    clock.set(60);
    let (proxy, store) = behind_proxy(&a, &patient()).await;
    let lease = granted(store.acquire(&fresh()).await);
    assert_eq!(health(&store, "connection").await, Some(Health::Passing));
    proxy.lead_to(b.port());
    until("it has left", async || connections_at(&a).await == [0, 0]).await;
    let asked = fresh();
    let next = granted(store.acquire(&asked).await);
    let key = format!("lg:{{{}}}:lock", asked.name);
    assert_eq!(b.integer(&["EXISTS", &key]).await, 1);
    assert!(next.fence > lease.fence);
    until_health(&store, "connection", Health::Warning, "has moved").await;
}

#[tokio::test]
async fn fencing_tokens_rise_although_the_clock_of_the_other_server_is_behind() {
    let a = RedisServer::start().await;
    let b = RedisServer::start_on(Clock::ahead(-3_600), &[]).await;
    let (proxy, store) = behind_proxy(&a, &patient()).await;
    let asked = attempt("a");
    let lease = granted(store.acquire(&asked).await);
    proxy.lead_to(b.port());
    let next = eventually("it is granted at the other server", async || {
        match store.acquire(&attempt("a")).await {
            Ok(Acquisition::Granted(lease)) => Some(lease),
            _ => None,
        }
    })
    .await;
    assert!(next.fence > lease.fence, "{next:?} {lease:?}");
}

#[tokio::test]
async fn those_who_wait_are_in_the_queue_of_the_server_to_which_the_address_has_moved() {
    let [a, b] = [RedisServer::start().await, RedisServer::start().await];
    let lifecycle = Lifecycle::new();
    let proxy = Proxy::start(a.port(), &lifecycle).await;
    let gate = TestGateway::with(&proxy.url(), &patient());
    let first = gate.take("a").await;
    let next = gate.queue(request("a")).await;
    proxy.lead_to(b.port());
    let lease = next.lease().await;
    assert_holds(&b, "a", &lease.token.hash(), "").await;
    assert!(lease.held.fence > first.held.fence);
}

#[tokio::test]
async fn a_server_that_was_started_again_is_used_again_and_is_not_called_another_one() {
    let mut server = RedisServer::start().await;
    let store = open_with(&server.url(), &patient());
    for _ in 0..3 {
        granted(store.acquire(&fresh()).await);
        server.kill();
        server.start_again().await;
    }
    granted(store.acquire(&fresh()).await);
    assert_eq!(health(&store, "connection").await, Some(Health::Passing));
}

#[tokio::test]
async fn an_address_that_leads_to_two_servers_in_turn_is_refused_for_as_long_as_it_does() {
    for connections in [1, 4] {
        let moving = Moving::start(connections, quick()).await;
        let servers = [moving.a.port(), moving.b.port()];
        moving.proxy.lead_in_turn(&servers);
        kill_one(&moving.a, false).await;
        let says_so = async || {
            let answer = moving.store.acquire(&fresh()).await;
            // On a busy machine the error may be that connections are not opened in time.
            let refused = matches!(answer, Err(StoreError::Unavailable(_)));
            (
                refused,
                answer == Err(Unavailability::SeveralServers.into()),
            )
        };
        eventually("it is refused", async || says_so().await.1.then_some(())).await;
        let before = moving.proxy.connections();
        let since = Instant::now();
        let mut answers = Vec::new();
        while since.elapsed() < Duration::from_secs(4) {
            answers.extend(join_all((0..8).map(|_| says_so())).await);
        }
        assert!(answers.iter().all(|(refused, _)| *refused), "{answers:?}");
        let reasons = answers.iter().filter(|(_, says_so)| *says_so).count();
        assert!(reasons > answers.len() / 2, "{answers:?}");
        // Some connections at once, and then one after each pause, which doubles each time.
        let dialled = moving.proxy.connections() - before;
        assert!(dialled <= 7 * 16, "{dialled} connections");
        assert_health(
            &moving.store,
            "connection",
            Health::Outage,
            "several servers in turn",
        )
        .await;
        moving.proxy.lead_to(moving.b.port());
        eventually("locks are granted again", async || {
            moving.store.acquire(&fresh()).await.ok()
        })
        .await;
        moving.left().await;
    }
}

/// A server that does not show its run id to the gateway's user.
async fn mute() -> (RedisServer, RedisStore) {
    let server = RedisServer::start().await;
    server
        .set_user("mute on >secret ~lg:* &lg:* +@all -info")
        .await;
    let store = open(&server.url_as("mute", "secret"));
    (server, store)
}

#[tokio::test]
async fn a_login_that_may_not_ask_for_the_run_is_served_and_readiness_says_what_is_missed() {
    let (_server, store) = mute().await;
    granted(store.acquire(&fresh()).await);
    assert_health(&store, "connection", Health::Warning, "run_id").await;
}

#[tokio::test]
async fn at_a_server_that_does_not_say_its_run_nobody_leaves_again_in_each_late_round() {
    let (server, store) = mute().await;
    granted(store.acquire(&attempt("lock")).await);
    let gone = attempt("lock");
    store.leave(&gone.name, &gone.token, None).await.unwrap();
    write_down_everything(&server).await;
    let rejected = async || {
        let stats = server.text(&["INFO", "commandstats"]).await;
        let info = stats.lines().find(|line| line.starts_with("cmdstat_info:"));
        let (_, rest) = info?.split_once("rejected_calls=")?;
        rest.split(',').next()?.parse::<u64>().ok()
    };
    for _ in 0..3 {
        let before = rejected().await.unwrap();
        kill_one(&server, true).await;
        // The new connection asks for the run id, and then the round does.
        eventually("a round has asked for the run", async || {
            let subscribed = connections_at(&server).await[1] == 1;
            (subscribed && rejected().await? >= before + 3).then_some(())
        })
        .await;
    }
    assert_eq!(runs(&server, &gone.token).await, 0);
}

#[tokio::test]
async fn what_was_sent_to_the_server_before_is_asked_again_at_the_other() {
    let moving = Moving::start(4, patient()).await;
    moving.a.freeze();
    let asked: Vec<_> = (0..16).map(|_| fresh()).collect();
    let answers = join_all(asked.iter().map(|asked| moving.store.acquire(asked)));
    let (answers, ()) = tokio::join!(answers, async {
        sleep(Duration::from_millis(100)).await;
        moving.proxy.lead_to(moving.b.port());
    });
    for (asked, answer) in asked.iter().zip(answers) {
        granted(answer);
        assert_holds(&moving.b, asked.name.as_str(), &asked.token, "").await;
    }
}
