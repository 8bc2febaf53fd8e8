//! Lost messages, lost replies and lost data, and leases that end between rounds: no waiter waits for a free lock.

use crate::redis::prelude::*;

/// Two gateways whose user may neither publish nor subscribe.
pub(super) async fn without_messages(server: &RedisServer) -> [TestGateway; 2] {
    server
        .set_user("mute on >s3cret ~lg:* +@all resetchannels")
        .await;
    let url = server.url_as("mute", "s3cret");
    [TestGateway::at(&url), TestGateway::at(&url)]
}

/// Asserts that every grant has its own fencing token.
pub(super) fn assert_distinct(fences: &[FencingToken]) {
    let distinct: BTreeSet<_> = fences.iter().collect();
    assert_eq!(distinct.len(), fences.len(), "{fences:?}");
}

/// Grants the lock to each waiter, in their order.
async fn serve_all(gate: &TestGateway, asked: Vec<PendingAcquire>) {
    let mut fences = Vec::new();
    for asked in asked {
        let lease = asked.lease().await;
        fences.push(lease.held.fence);
        gate.release(&lease).await;
    }
    assert_distinct(&fences);
}

/// Grants the lock to all waiters, in any order.
async fn serve_in_any_order(gate: &TestGateway, asked: Vec<PendingAcquire>) {
    let all = asked.into_iter().map(|asked| async move {
        let lease = asked.lease().await;
        gate.release(&lease).await;
        lease.held.fence
    });
    assert_distinct(&join_all(all).await);
}

async fn queue_many(gates: &[TestGateway], lock: &str, count: usize) -> Vec<PendingAcquire> {
    let mut queue = Vec::new();
    for turn in 0..count {
        queue.push(gates[turn % gates.len()].queue(request(lock)).await);
    }
    queue
}

#[tokio::test]
async fn a_lost_message_costs_a_period() {
    let (server, gates, mut lease) = two_gateways_holding("message").await;
    for _ in 0..3 {
        let asked = gates[1].queue(request("message")).await;
        server.run(&["CLIENT", "KILL", "TYPE", "pubsub"]).await;
        let start = Instant::now();
        gates[0].release(&lease).await;
        lease = asked.noticed_since(start).await;
        let is_so = async || subscribers(&server).await == 2;
        until("both gateways listen again", is_so).await;
    }
}

#[tokio::test]
async fn without_any_channel_waiters_are_served_once_a_period() {
    let server = RedisServer::start().await;
    let gates = without_messages(&server).await;
    let lease = gates[0].take("mute").await;
    // The TTL of this request is shorter than a period, and begins when the gateway finds the grant.
    let mut brief = request("mute");
    brief.terms.set_ttl(ttl(400));
    brief.terms.set_hold_limit(limit(500));
    let first = gates[1].queue(brief).await;
    let second = gates[0].queue(request("mute")).await;
    let start = Instant::now();
    gates[0].release(&lease).await;
    let lease = first.noticed_since(start).await;
    let left = lease.held.expires_in;
    assert!(left > Duration::from_millis(350), "{left:?}");
    let left = lease.held.hold_expires_in.unwrap();
    assert!(left > Duration::from_millis(450), "{left:?}");
    assert_eq!(gates[0].store.figures().unsent_messages, Some(1));
    let lease = second.lease().await;
    assert!(lease.held.expires_in > Duration::from_secs(25));
    match health(&gates[0].store, "permissions").await {
        Some(Health::Misconfigured(what)) => assert!(what.contains("&lg:*"), "{what}"),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_user_that_may_publish_but_not_subscribe_is_told() {
    let server = RedisServer::start().await;
    server
        .set_user("deaf on >s3cret ~lg:* &lg:* +@all -subscribe")
        .await;
    let gate = TestGateway::at(&server.url_as("deaf", "s3cret"));
    let (store, misconfigured) = (&*gate.store, Health::Misconfigured);
    until_health(store, "permissions", misconfigured, "subscribe").await;
}

#[tokio::test]
async fn a_release_whose_reply_is_lost_has_passed_the_lock_on() {
    let (server, gate) = gateway().await;
    let proxy = Proxy::start(server.port(), &gate.lifecycle).await;
    let behind = TestGateway::with(&proxy.url(), &quick());
    // The server knows the script by then.
    behind.release(&behind.take("reply").await).await;
    let lease = behind.take("reply").await;
    let asked = behind.queue(request("reply")).await;
    proxy.strike(&lease.token.hash().to_string(), Fault::CutReply);
    let start = Instant::now();
    assert_unknown(behind.store.release(&lease.name, &lease.token.hash()).await);
    let lease = asked.noticed_since(start).await;
    assert!(lease.held.expires_in > Duration::from_secs(25));
}

#[tokio::test]
async fn those_who_wait_for_a_server_that_loses_all_ask_again() {
    let (mut server, gates) = two_gateways().await;
    gates[0].take("lost").await;
    let asked = queue_many(&gates, "lost", 20).await;
    server.kill();
    server.start_again().await;
    serve_in_any_order(&gates[0], asked).await;

    gates[0].take("flushed").await;
    let asked = queue_many(&gates, "flushed", 20).await;
    server.run(&["FLUSHALL"]).await;
    serve_in_any_order(&gates[1], asked).await;
}

#[tokio::test]
async fn a_queue_survives_a_restart_with_its_data() {
    let mut server = RedisServer::start_logged().await;
    let gates = gateways_on(&server).await;
    let lease = gates[0].take("kept").await;
    let asked = queue_many(&gates, "kept", 10).await;
    server.kill();
    server.start_again().await;
    until("the gateways are back", async || {
        subscribers(&server).await == 2 && gates[0].inspect(&lease.name).await.is_ok()
    })
    .await;
    gates[0].release(&lease).await;
    serve_all(&gates[1], asked).await;
}

#[tokio::test]
async fn a_gateway_that_was_forgotten_asks_again_for_its_waiters() {
    let (server, gates, lease) = two_gateways_holding("forgotten").await;
    let mut asked = queue_many(&gates[1..], "forgotten", 5).await;
    asked.push(gates[0].queue(request("forgotten")).await);
    // As after a pause of that gateway: other gateways take its waiters for dead.
    forget_gateways(&server).await;
    gates[0].release(&lease).await;
    let lease = asked.pop().unwrap().lease().await;
    assert_eq!(gates[0].look("forgotten").await.waiters, 0);
    // The waiters are back in the queue before anything else happens to the lock.
    gates[0].until_queued("forgotten", 5).await;
    gates[0].release(&lease).await;
    serve_in_any_order(&gates[0], asked).await;
}

#[tokio::test]
async fn a_queue_that_was_deleted_by_hand_is_made_anew_when_the_lock_is_free() {
    let (server, gate, lease) = gateway_holding("deleted").await;
    let asked = vec![gate.queue(request("deleted")).await];
    lose_queue(&server, "deleted").await;
    gate.release(&lease).await;
    serve_in_any_order(&gate, asked).await;
}

#[tokio::test]
async fn a_queue_whose_end_was_lost_in_a_crash_is_made_anew_at_once() {
    let mut server = RedisServer::start_logged().await;
    let gate = TestGateway::on(&server).await;
    let lease = gate.take("tail").await;
    let asked = queue_many(std::slice::from_ref(&gate), "tail", 3).await;
    // A round has been made since the store connected.
    let [alive]: [String; 1] = alive(&server).await.try_into().unwrap();
    until("the first round is made", async || {
        let left = server.integer(&["PTTL", &alive]).await;
        left > 5_500
    })
    .await;
    lose_queue(&server, "tail").await;
    server.kill();
    server.start_again().await;
    // The server already answers while it reads its data, and this command with an error.
    let is_so = async || server.run(&["EXISTS", &alive]).await == Value::Int(1);
    until("the gateway still counts as alive", is_so).await;
    // The gateway must restore the queue although the lock is held and the gateway still counts as alive.
    gate.until_queued("tail", 3).await;
    gate.release(&lease).await;
    serve_in_any_order(&gate, asked).await;
}

async fn lose_queue(server: &RedisServer, lock: &str) {
    let key = format!("lg:{{{lock}}}:wait");
    assert_eq!(server.integer(&["DEL", &key]).await, 1);
}

#[tokio::test]
async fn waiters_get_through_while_the_subscriptions_are_cut_again_and_again() {
    let (server, gates, lease) = two_gateways_holding("storm").await;
    let ask = |turn: usize| gates[turn % 2].ask(request("storm"));
    let asked: Vec<_> = (0..30).map(ask).collect();
    gates[0].until_queued("storm", 30).await;
    gates[0].release(&lease).await;
    let cut = async {
        loop {
            server.run(&["CLIENT", "KILL", "TYPE", "pubsub"]).await;
            sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::select! {
        () = serve_in_any_order(&gates[0], asked) => {}
        () = cut => {}
    }
}

const SHORT: Duration = Duration::from_millis(300);
/// Locks that are held for a short time, one after the other. If a round found the end of one lease, the next lease
/// would begin right after the round, and its end would again be found late by most of a period.
const LOCKS: [&str; 7] = ["a", "b", "c", "d", "e", "f", "g"];

/// A request for a short lease that is never released.
fn brief(lock: &str) -> AcquireRequest {
    with(request(lock), |it| {
        it.terms
            .set_ttl(ttl(u64::try_from(SHORT.as_millis()).unwrap()));
    })
}

/// How long after the end of a short lease, which began at `began` or a little before, the next waiter was granted the
/// lock.
async fn lateness(began: Instant, next: PendingAcquire) -> Duration {
    let (at, _) = next.granted().await;
    at.saturating_duration_since(began + SHORT)
}

/// Waits for the grant of the holder, whose gateway is then killed.
async fn begins(holder: PendingAcquire, there: &TestGateway) -> Instant {
    let (began, _) = holder.granted().await;
    there.kill().await;
    began
}

/// What happens just before the short lease whose end must be noticed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Before {
    /// The lock is handed over by the gateway at which the next waiter is.
    FromHere,
    /// The lock is handed over by the holder's gateway, with its reply.
    ByReply,
    /// The lock is handed over by a third gateway, with a message.
    ByMessage,
    /// The waiter behind the holder has lost its ticket.
    LostTicket,
    /// The waiter behind the holder has left.
    Left,
}

#[tokio::test]
async fn the_end_of_a_short_lease_is_noticed_whatever_was_before() {
    use Before::{ByMessage, ByReply, FromHere, Left, LostTicket};
    for before in [FromHere, ByReply, ByMessage, LostTicket, Left] {
        println!("{before:?}");
        assert_most_precede_rounds(after(before).await);
    }
}

async fn after(before: Before) -> Vec<Duration> {
    let (server, [here, third]) = two_gateways().await;
    let mut late = Vec::new();
    for lock in LOCKS {
        let there = TestGateway::on(&server).await;
        let lease = there.take(lock).await;
        let holder = there.queue(brief(lock)).await;
        let mut first = None;
        if [Before::LostTicket, Before::Left].contains(&before) {
            first = Some(third.queue(request(lock)).await);
        }
        let next = here.queue(request(lock)).await;
        if before == Before::LostTicket {
            let id = ["LINDEX", &format!("lg:{{{lock}}}:wait"), "1"];
            let ticket = format!("lg:{{{lock}}}:of:{}", server.text(&id).await);
            assert_eq!(server.integer(&["DEL", &ticket]).await, 1);
        }
        let gate = match before {
            Before::FromHere => &here,
            Before::ByMessage => &third,
            _ => &there,
        };
        gate.release(&lease).await;
        let began = begins(holder, &there).await;
        if before == Before::Left {
            first = None;
            here.until_queued(lock, 1).await;
        }
        late.push(lateness(began, next).await);
        drop(first);
    }
    late
}

#[tokio::test]
async fn the_end_is_noticed_although_the_first_behind_it_is_dead() {
    let (server, [here, doomed]) = two_gateways().await;
    let mut queues = Vec::new();
    for lock in LOCKS {
        let there = TestGateway::on(&server).await;
        let lease = there.take(lock).await;
        let holder = there.queue(brief(lock)).await;
        let dead = doomed.queue(request(lock)).await;
        let next = here.queue(request(lock)).await;
        queues.push((there, lease, holder, dead, next));
    }
    doomed.kill().await;
    let is_so = async || subscribers(&server).await == 1 + LOCKS.len();
    until("it hears nothing any more", is_so).await;
    let keys = server.keys().await;
    for key in keys.iter().filter(|key| key.contains(":gw:")) {
        let id = key.rsplit(':').next().unwrap();
        let channel = format!("lg:gw:{id}");
        if server.integer(&["PUBLISH", &channel, ""]).await == 0 {
            // The gateway has not been marked as alive for long.
            server.run(&["DEL", key]).await;
        }
    }
    let mut late = Vec::new();
    for (there, lease, holder, _dead, next) in queues {
        there.release(&lease).await;
        late.push(lateness(begins(holder, &there).await, next).await);
    }
    assert_most_precede_rounds(late);
}

#[tokio::test]
async fn the_end_is_noticed_of_one_that_was_confirmed_late() {
    let (_server, [here, there]) = two_gateways().await;
    let mut late = Vec::new();
    for lock in LOCKS {
        let lease = here.take(lock).await;
        let asked = with(waiting(attempt(lock)), |it| {
            it.terms.set_ttl(brief(lock).terms.ttl());
        });
        let mut parked = there.stand(&asked).await;
        let next = here.queue(request(lock)).await;
        here.release(&lease).await;
        assert_eq!(parked.news().await, News::GrantedProvisionally);
        // As if the message of the grant was lost: the grant is confirmed only after a round has found it.
        sleep(3 * SHORT / 2).await;
        there.must_confirm(&asked).await;
        late.push(lateness(Instant::now(), next).await);
    }
    assert_most_precede_rounds(late);
}
