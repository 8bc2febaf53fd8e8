//! Requests that were refused, when a server takes over that does not know it.

use super::{named::Named, watched::PATIENT_MS};
use crate::redis::prelude::*;
use crate::redis::{
    replicas::replicated::left_queued,
    server::power_loss::{length, lose_the_end},
    waiting::gate::keyed_request as keyed,
};

/// Longer than a failover takes on a busy machine.
const LONG_MS: u64 = 300_000;
/// Long enough to enter the queue on every server.
const BRIEF: Duration = Duration::from_secs(5);

/// A request that waits much longer than the test takes.
fn patient(lock: &str) -> AcquireRequest {
    with(request(lock), |it| it.wait = Duration::from_millis(LONG_MS))
}

fn waits_for_one() -> RedisConfig {
    waits_for(1, 1_000)
}

async fn take(gate: &TestGateway, lock: &str) -> Lease {
    until_taken(gate, lock, LONG_MS).await
}

async fn queued(server: &RedisServer, lock: &str) -> i64 {
    let key = format!("lg:{{{lock}}}:wait");
    server.integer(&["LLEN", &key]).await
}

async fn until_empty(server: &RedisServer, lock: &str) {
    let key = format!("lg:{{{lock}}}:wait");
    until_integer(server, &["LLEN", &key], 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn those_who_were_refused_leave_the_queue_of_the_next_master_too() {
    let mut watched = Watched::start().await;
    // The master must not be replaced before it is killed, also on a busy machine.
    watched.notices_after(PATIENT_MS).await;
    let gates = [0, 1].map(|_| TestGateway::with(&watched.url(), &waits_for_one()));
    let first = take(&gates[0], "handed-on").await;
    take(&gates[0], "held").await;
    let taken_back = gates[1].queue(patient("handed-on")).await;
    let hung_up = gates[1].queue(patient("held")).await;
    let mut brief = Vec::new();
    for asked in [request("held"), keyed("held", "kept")] {
        brief.push(gates[1].queue(with(asked, |it| it.wait = BRIEF)).await);
    }
    for replica in &watched.servers[1..] {
        until("the replica has heard of all waiters", async || {
            [
                queued(replica, "handed-on").await,
                queued(replica, "held").await,
            ] == [1, 3]
        })
        .await;
    }
    // The replicas get no data for some seconds.
    watched.cut_off_replicas(0).await;

    gates[0].release(&first).await;
    assert_eq!(left_queued(taken_back).await, Some(0));
    drop(hung_up);
    for asked in brief {
        let refused = asked.refusal().await;
        assert!(matches!(refused, AcquireError::Held { .. }), "{refused:?}");
    }
    let replica = &watched.servers[1];
    let missed = [
        queued(replica, "handed-on").await,
        queued(replica, "held").await,
    ];
    assert_eq!(missed, [1, 3], "the fault happens: it has not heard of it");
    // The replicas may become the master although they were cut off for so long.
    watched.notices_after("3000").await;
    let master = watched.lose_master().await;

    let next = &watched.servers[master];
    for lock in ["handed-on", "held"] {
        until_empty(next, lock).await;
    }
    // The release was lost as well. When the lock is free, the next request gets it.
    gates[0].release(&first).await;
    let stranger = gates[0].acquire(&attempt("handed-on")).await;
    let held = matches!(stranger, Ok(Acquisition::Held(_)));
    assert!(!held, "{stranger:?}");
}

#[tokio::test]
async fn a_grant_that_was_taken_back_ends_on_the_next_master_too() {
    let named = Named::start_with(1, &waits_for_one()).await;
    let (store, [first, second]) = (&named.store, &named.servers);
    let too_few = until_too_few(store).await;
    let (asked, key) = (attempt("a"), "lg:{a}:lock");
    let (refused, copy) = tokio::join!(
        store.acquire(&asked),
        eventually("it waits for a replica", async || {
            let lease = first.run(&["GET", key]).await;
            from_redis_value::<Option<String>>(lease).unwrap()
        })
    );
    assert_eq!(refused.err(), Some(too_few));
    // The replica got the grant a moment too late, and nothing after it.
    second.run(&["SET", key, &copy, "PX", "300000"]).await;
    named.hand_on();
    until_integer(second, &["EXISTS", key], 0).await;
}

#[tokio::test]
async fn a_lease_that_was_given_back_ends_on_the_next_master_too() {
    let named = Named::start_with(1, &quick()).await;
    let (store, [first, second]) = (&named.store, &named.servers);
    let [undelivered, unanswered] = ["undelivered", "unanswered"].map(attempt);
    store.must_grant_each([&undelivered, &unanswered]).await;
    let recipient = RecipientId::random();
    let adopter = Renewer::Adopter(recipient);
    store.must_renew_as(adopter, &unanswered).await;
    let keys = ["lg:{undelivered}:lock", "lg:{unanswered}:lock"];
    let mut copies = Vec::new();
    for key in keys {
        copies.push(first.text(&["GET", key]).await);
    }
    store
        .must_give_back(&undelivered, GiveBack::GivenBack)
        .await;
    let (name, token) = (&unanswered.name, &unanswered.token);
    let given_back = store.give_back(name, token, Some(recipient)).await;
    assert_eq!(given_back, Ok(GiveBack::GivenBack));
    // The replica has the grants, and nothing after them.
    for (key, copy) in keys.iter().zip(&copies) {
        second.run(&["SET", key, copy, "PX", "300000"]).await;
    }
    named.hand_on();
    until_integer(second, &["EXISTS", keys[0], keys[1]], 0).await;
}

/// The key and the text of the only ticket of a lock.
async fn ticket(server: &RedisServer, lock: &str) -> (String, String) {
    let mut keys = server.keys().await;
    keys.retain(|key| key.starts_with(&format!("lg:{{{lock}}}:of:")));
    let [key] = &keys[..] else {
        panic!("{keys:?}");
    };
    (key.clone(), server.text(&["GET", key]).await)
}

#[tokio::test]
async fn a_place_that_its_caller_came_back_for_stays_in_the_queue_of_the_next_master() {
    let named = Named::start_with(1, &quick()).await;
    let [first, second] = &named.servers;
    let gate = TestGateway::with(&named.url(), &quick());
    let locks = ["returned", "lapsed"];
    let (mut tickets, mut asked) = (Vec::new(), Vec::new());
    for lock in locks {
        take(&gate, lock).await;
        asked.push(gate.queue(keyed(lock, "key")).await);
        tickets.push(ticket(first, lock).await);
    }
    // The position of the first attempt is kept, taken over again, and lapses before that of the second does.
    drop(asked.remove(0));
    let is_so = async || ticket(first, locks[0]).await != tickets[0];
    until("the place is kept", is_so).await;
    let _returned = gate.queue(keyed(locks[0], "key")).await;
    drop(asked);
    until_empty(first, locks[1]).await;
    // The replica has none of these changes.
    for (lock, (key, ticket)) in locks.iter().zip(&tickets) {
        let lease = first.text(&["GET", &format!("lg:{{{lock}}}:lock")]).await;
        let (wait, id) = (format!("lg:{{{lock}}}:wait"), &key[key.len() - 65..]);
        let lock = format!("lg:{{{lock}}}:lock");
        let ms = LONG_MS.to_string();
        second.run(&["SET", &lock, &lease, "PX", &ms]).await;
        second.run(&["SET", key, ticket, "PX", &ms]).await;
        second.run(&["RPUSH", &wait, id]).await;
    }
    named.hand_on();
    until_empty(second, locks[1]).await;
    let (key, ticket) = &tickets[0];
    assert_eq!(second.text(&["GET", key]).await, *ticket);
}

#[tokio::test]
async fn those_who_have_left_do_so_again_when_the_server_is_back_with_older_data() {
    let mut server = RedisServer::start_logged().await;
    let gate = TestGateway::on(&server).await;
    let lease = gate.take_for("lock", LONG_MS).await;
    let gone = gate.queue(patient("lock")).await;
    let stays = gate.queue(patient("lock")).await;
    let before = length(&server);
    drop(gone);
    gate.until_queued("lock", 1).await;
    // From here on the queue of the server has two waiters, until the gateway is connected again.
    lose_the_end(&mut server, before).await;
    gate.until_queued("lock", 1).await;
    gate.pass(&lease, stays).await;
}
