//! Waiters for shared locks: at other gateways, with lost messages, and in crowds.

use super::faults::{assert_distinct, without_messages};
use crate::redis::prelude::*;
use crate::redis::scripts::bounds::calls;

fn share(limit: Option<u64>, lock: &str) -> AcquireRequest {
    with(request(lock), |it| it.terms.sharing = Some(sharing(limit)))
}

/// The number of leases that hold a lock.
async fn holders(gate: &TestGateway, lock: &str) -> u64 {
    gate.look(lock).await.holder.map_or(0, |it| it.count())
}

/// Runs a script as a gateway would, with `more` as further arguments. Answers the reply.
async fn run_as(
    server: &RedisServer,
    (script, more): (&str, &str),
    lock: &str,
    arguments: &[&str],
) -> String {
    let script = composed(script).replace("TOMBSTONE", "60000");
    let script = script.trim_end().to_owned() + more;
    let (key, fence) = (format!("lg:{{{lock}}}:lock"), fence_key(&name(lock)));
    let mut command = vec!["EVAL", &script, "2", &key, &fence];
    command.extend(arguments);
    server.text(&command).await
}

/// The id of the gateway at which an attempt entered the queue.
async fn gateway_of(server: &RedisServer, lock: &str, token: &TokenHash) -> String {
    let ticket = format!("lg:{{{lock}}}:of:2{token}");
    server.text(&["GETRANGE", &ticket, "1", "16"]).await
}

#[tokio::test]
async fn a_reader_whose_message_is_lost_is_granted_the_lock_within_a_period() {
    let server = RedisServer::start().await;
    let gates = without_messages(&server).await;
    let writer = gates[0].take("mute").await;
    let here = gates[0].queue(share(None, "mute")).await;
    let there = [
        gates[1].queue(share(None, "mute")).await,
        gates[1].queue(share(Some(9), "mute")).await,
    ];
    let start = Instant::now();
    gates[0].release(&writer).await;
    let mut held = vec![here.lease().await];
    for asked in there {
        held.push(asked.noticed_since(start).await);
    }
    for lease in &held[1..] {
        let left = lease.held.expires_in;
        assert!(left > Duration::from_secs(25), "confirmed: {left:?}");
    }
    assert_eq!(holders(&gates[0], "mute").await, 3);
    for lease in &held {
        gates[1].release(lease).await;
    }
    assert_eq!(leftovers(&server, "mute").await, [""; 0]);
}

#[tokio::test]
async fn a_round_finds_the_grants_that_its_gateway_has_not_confirmed() {
    let (server, [here, there]) = two_gateways().await;
    let stays = here.take("found").await;
    let (_first, mine) = stand(&*here.store, reader("found")).await;
    let (_second, theirs) = stand(&*there.store, reader("found")).await;
    let [me, them] = [
        gateway_of(&server, "found", &mine).await,
        gateway_of(&server, "found", &theirs).await,
    ];
    // The gateways of the waiters get no message about the grants of a third gateway.
    server.run(&["CLIENT", "KILL", "TYPE", "pubsub"]).await;
    let floor = |gateway: &str| format!("{:016}{gateway}", 0);
    let id = format!("2{}", stays.token.hash());
    let nobody = floor("0123456789abcdef");
    let released = run_as(&server, ("release", ""), "found", &[&id, &nobody]).await;
    assert!(released.starts_with("released"), "{released}");
    for (asks, finds, not) in [(&me, mine, theirs), (&them, theirs, mine)] {
        let told = run_as(&server, ("advance", ""), "found", &[&floor(asks)]).await;
        let word = |token: TokenHash| format!("11:provisional64:{token}");
        assert!(told.contains(&word(finds)), "{told}");
        assert!(!told.contains(&word(not)), "{told}");
    }
    let confirmed = here.confirm(&stays.name, &mine).await;
    assert!(matches!(confirmed, Ok(Confirmation::Confirmed(_))));
    let told = run_as(&server, ("advance", ""), "found", &[&floor(&me)]).await;
    assert!(!told.contains("provisional"), "it is confirmed: {told}");
}

#[tokio::test]
async fn a_gateway_that_is_killed_with_grants_it_has_not_confirmed_costs_their_time_once() {
    let (server, [doomed, other]) = two_gateways().await;
    let writer = other.take_for("killed", 600_000).await;
    let mut dead = Vec::new();
    for _ in 0..6 {
        dead.push(doomed.queue(share(Some(3), "killed")).await);
    }
    let next = other.queue(share(Some(3), "killed")).await;
    doomed.kill().await;
    let start = Instant::now();
    other.release(&writer).await;
    // All three leases are granted to the first waiters, whose gateway is dead.
    assert_eq!(holders(&other, "killed").await, 3);
    let (at, lease) = next.granted().await;
    let delay = at - start;
    assert!(delay > Duration::from_secs(2), "{delay:?}");
    assert!(delay < NOTICED, "{delay:?}");
    assert_eq!(holders(&other, "killed").await, 1);
    other.release(&lease).await;
    assert_eq!(leftovers(&server, "killed").await, [""; 0]);
    drop(dead);
}

#[tokio::test]
async fn a_lock_is_passed_on_to_readers_although_the_server_is_out_of_memory() {
    let (server, [here, there]) = two_gateways().await;
    let writer = here.take("oom").await;
    let readers = [
        here.queue(share(None, "oom")).await,
        there.queue(share(Some(3), "oom")).await,
    ];
    let limited = here.queue(share(Some(2), "oom")).await;
    let last = there.queue(request("oom")).await;
    server.set("maxmemory", "1").await;
    here.release(&writer).await;
    let mut held = Vec::new();
    for asked in readers {
        let lease = asked.lease().await;
        assert!(lease.held.expires_in > Duration::from_secs(25), "confirmed");
        held.push(lease);
    }
    // Renewals and breaks work, and each lease that ends makes room for the next waiter.
    let (name, token) = (&held[0].name, held[0].token.hash());
    let renewed = here.renew(name, &token, Some(ttl(50_000))).await;
    assert!(renewed.is_ok(), "{renewed:?}");
    let target = Some(held[1].held.fence.into());
    here.break_lock(name, target).await.unwrap();
    held[1] = limited.lease().await;
    for lease in &held {
        there.release(lease).await;
    }
    here.release(&last.lease().await).await;
    let refused = here.acquire(&reader("oom")).await;
    assert!(refused.is_err(), "{refused:?}");
}

#[tokio::test]
async fn one_script_grants_a_bounded_number_and_the_rest_follow() {
    const CROWD: u64 = 150;
    let (server, [here, there]) = two_gateways().await;
    let writer = here.take_for("crowd", 600_000).await;
    let crowd: Vec<_> = (0..CROWD)
        .map(|_| there.ask(share(None, "crowd")))
        .collect();
    there.until_queued("crowd", CROWD).await;
    let id = format!("2{}", writer.token.hash());
    let nobody = format!("{:016}0123456789abcdef", 0);
    let count = " .. ' ' .. redis.call('ZCARD', name .. 'shared')";
    let told = run_as(&server, ("release", count), "crowd", &[&id, &nobody]).await;
    assert!(told.contains("6:4:more"), "{told}");
    assert!(told.ends_with(" 64"), "{told}");
    let mut fences = Vec::new();
    for asked in crowd {
        fences.push(asked.lease().await.held.fence);
    }
    assert_distinct(&fences);
    assert_eq!(holders(&here, "crowd").await, CROWD);
}

#[tokio::test]
async fn a_reader_behind_a_crowd_of_the_dead_is_granted_the_lock_by_the_next_script() {
    let server = RedisServer::start().await;
    let here = TestGateway::on(&server).await;
    let holder = reader("behind");
    here.acquire(&holder).await.unwrap();
    let (_first, writer) = stand(&*here.store, attempt("behind")).await;
    let (_second, _next) = stand(&*here.store, reader("behind")).await;
    let bury = "redis.call('LREM', KEYS[1], 1, ARGV[1]) \
                for n = 1, 600 do redis.call('LPUSH', KEYS[1], '2' .. n) end";
    let (wait, id) = ("lg:{behind}:wait", format!("2{writer}"));
    server.run(&["EVAL", bury, "1", wait, &id]).await;
    let told = format!("{:016}{}", 0, "a".repeat(16));
    let reply = run_as(&server, ("advance", ""), "behind", &[&told]).await;
    assert!(reply.contains("6:4:more"), "{reply}");
    assert_eq!(holders(&here, "behind").await, 1);
    let reply = run_as(&server, ("advance", ""), "behind", &[&told]).await;
    assert!(!reply.contains("6:4:more"), "{reply}");
    assert_eq!(holders(&here, "behind").await, 2);
}

#[tokio::test]
async fn to_look_for_one_lease_shows_no_other() {
    let rig = Rig::start().await;
    let held = [reader("one"), reader("one"), reader("one")];
    let mut fences = Vec::new();
    for asked in &held {
        fences.push(rig.grant(asked).await.fence.get());
    }
    let shows = async |fence: u64| {
        let fence = format!("{fence:016}");
        let told = run_as(&rig.server, ("list", ""), "one", &["100", &fence]).await;
        let is_shown = |asked: &&Attempt| told.contains(&asked.token.to_string());
        held.iter().filter(is_shown).count()
    };
    assert_eq!(shows(fences[1]).await, 1);
    // A question about a fencing token that no lease has shows all holders.
    assert_eq!(shows(fences[2] + 1).await, 3);
}

#[tokio::test]
async fn a_gateway_that_was_looked_at_before_counts_as_dead_when_it_does_not_confirm() {
    let (server, [here, there]) = two_gateways().await;
    let holder = reader("unconfirmed");
    here.acquire(&holder).await.unwrap();
    let (_first, writer) = stand(&*there.store, keyed("unconfirmed", "a")).await;
    let (_second, next) = stand(&*there.store, reader("unconfirmed")).await;
    let gateway = format!(":gw:{}", gateway_of(&server, "unconfirmed", &next).await);
    there.kill().await;
    let keys = server.keys().await;
    let alive = keys.iter().find(|key| key.ends_with(&gateway)).unwrap();
    server.run(&["PEXPIRE", alive, "60000"]).await;
    // The request does not wait, so it gives up the position of its key.
    let again = keyed("unconfirmed", "a");
    assert_ne!(again.token, writer);
    here.must_refuse(&again).await;
    assert_eq!(holders(&here, "unconfirmed").await, 2);
    let left = server.integer(&["PTTL", alive]).await;
    assert!(left <= 3_000, "{left}");
}

#[tokio::test]
async fn a_foreign_client_that_deletes_a_shared_lock_raises_nobody_for_those_who_wait() {
    let (server, [here, there]) = two_gateways().await;
    let mut dead = Vec::new();
    for _ in 0..3 {
        let asked = with(share(Some(3), "deleted"), |it| it.wait = Duration::ZERO);
        dead.push(keep(here.engine.acquire(asked).await));
    }
    let waits = [
        there.queue(share(Some(1), "deleted")).await,
        here.queue(request("deleted")).await,
    ];
    server.run(&["DEL", "lg:{deleted}:lock"]).await;
    let [first, alone] = waits;
    // A round finds the lock free. The first waiter has a limit of one, and dead waiters do not count.
    let lease = first.lease().await;
    assert_eq!(lease.held.mode.slot(), Some(0));
    assert_eq!(holders(&here, "deleted").await, 1);
    let lease = here.pass(&lease, alone).await;
    assert!(matches!(
        here.look("deleted").await.holder,
        Some(Holder::Lease(held)) if held.fence == lease.held.fence
    ));
    here.release(&lease).await;
    assert_eq!(leftovers(&server, "deleted").await, [""; 0]);
    drop(dead);
}

#[tokio::test]
async fn a_script_flush_between_a_grant_and_its_confirmation_costs_nothing() {
    let (server, [here, there]) = two_gateways().await;
    let mut last: Option<Lease> = Some(here.take("flushed").await);
    for _ in 0..3 {
        let asked = there.queue(share(Some(3), "flushed")).await;
        let also = here.queue(share(None, "flushed")).await;
        server.run(&["SCRIPT", "FLUSH"]).await;
        if let Some(lease) = last.take() {
            here.release(&lease).await;
        }
        let (one, other) = (asked.lease().await, also.lease().await);
        server.run(&["SCRIPT", "FLUSH"]).await;
        assert_eq!(holders(&there, "flushed").await, 2);
        let next = there.queue(request("flushed")).await;
        here.release(&one).await;
        here.release(&other).await;
        last = Some(next.lease().await);
    }
}

#[tokio::test]
async fn those_who_are_woken_by_the_last_reply_are_told_by_it() {
    let rig = Rig::start().await;
    let asked = [reader("told"), one_of(3, "told"), reader("told")];
    let writer = rig.must_hold(attempt("told")).await;
    let mut parked = Vec::new();
    for asked in asked {
        let asked = waiting(asked);
        parked.push(rig.park(&asked));
        rig.acquire(&asked).await.unwrap();
    }
    rig.must_release(&writer).await;
    // The grants come with the reply alone, without a message or a round.
    for parked in &mut parked {
        let news = parked.try_news();
        assert!(matches!(news, Some(News::Granted(_))), "{news:?}");
    }
}

#[tokio::test]
async fn a_place_is_passed_on_by_a_few_commands_however_many_share_the_lock() {
    let mut costs = Vec::new();
    for others in [2_u64, 100] {
        let rig = Rig::start().await;
        for _ in 1..others {
            rig.grant(&one_of(others, "handed")).await;
        }
        let mut holder = one_of(others, "handed");
        rig.grant(&holder).await;
        // A round or an examination in between adds commands, so the smallest number counts.
        let mut least = u64::MAX;
        for _ in 0..50 {
            let next = waiting(one_of(others, "handed"));
            let _place = rig.stand(&next).await;
            calls(&rig.server).await;
            rig.must_release(&holder).await;
            least = least.min(calls(&rig.server).await.values().sum());
            holder = next;
        }
        costs.push(least);
    }
    assert_eq!(costs, [28, 28]);
}
