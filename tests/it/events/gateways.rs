//! Events across all gateways on one Redis server, and across two of its databases.

use super::fixture::{Reader, ReceivedEvent, Site, acquire, once, post, release, renew};
use crate::api::prelude::*;

fn is(kind: &'static str) -> impl Fn(&ReceivedEvent) -> bool {
    move |heard| heard.kind == kind
}

/// The parts of an event that are the same at every gateway.
fn key(heard: &ReceivedEvent) -> String {
    format!("{} {}", heard.brief(), heard.data["fencing_token"])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_happens_at_another_gateway_is_heard_with_all_that_is_known() {
    let site = Site::redis(2).await;
    let mut reader = site.reader().await;
    let other = &site.gateways[1];
    let lease = acquire(other, "a", &json!({"owner": "ci \"7\"\u{1f512}"})).await;
    renew(other, &lease).await;
    let waiting = post(other, "/locks/a", &json!({"wait_ms": 1, "owner": "w"})).await;
    assert_eq!(waiting.status, 423);
    release(other, &lease).await;
    for kind in ["acquired", "renewed", "queued", "released"] {
        let event = reader.expect(kind).await;
        assert_eq!(event["name"], "a");
        if kind != "queued" {
            assert_eq!(event["owner"], lease["owner"], "{event}");
            assert_eq!(event["fencing_token"], lease["fencing_token"], "{event}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_may_begin_at_one_gateway_and_end_at_another() {
    let site = Site::redis(2).await;
    let mut reader = site.reader().await;
    let (here, there) = (&site.gateways[0], &site.gateways[1]);
    for (from, to) in [(here, there), (there, here), (here, there), (there, here)] {
        let lease = acquire(from, "a", &json!({"owner": "ci"})).await;
        release(to, &lease).await;
        let mut told = [reader.next().await.unwrap(), reader.next().await.unwrap()];
        // Events of the gateway itself may come before those of another gateway, so the order of the kinds may differ.
        told.sort_by(|one, other| one.kind.cmp(&other.kind));
        assert_eq!(
            told.each_ref().map(|it| it.kind.as_str()),
            ["acquired", "released"]
        );
        for event in told {
            assert_eq!(event.data["name"], "a");
            assert_eq!(event.data["fencing_token"], lease["fencing_token"]);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_was_released_at_another_gateway_than_its_own_is_not_said_to_have_expired() {
    let site = Site::redis(2).await;
    let mut reader = site.reader().await;
    let (here, there) = (&site.gateways[0], &site.gateways[1]);
    let lease = acquire(there, "a", &json!({"ttl_ms": 3_500})).await;
    release(here, &lease).await;
    acquire(there, "b", &json!({"ttl_ms": 5_000})).await;
    let heard = reader.up_to(is("expired")).await;
    assert_eq!(heard.last().unwrap().data["name"], "b", "{heard:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_break_at_one_gateway_is_heard_at_every_one_whoever_granted_the_lease() {
    let site = Site::redis(2).await;
    let mut readers = [site.reader().await, site.reader_at(1).await];
    let is_end = |heard: &ReceivedEvent| heard.data["name"] == "a" && heard.kind != "acquired";
    for (granted_at, broken_at) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        let lease = acquire(&site.gateways[granted_at], "a", &json!({"owner": "ci"})).await;
        let why = json!({"reason": "it hangs"});
        let answer = post(&site.gateways[broken_at], "/locks/a/break", &why).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        for reader in &mut readers {
            let heard = reader.up_to(is_end).await;
            let broken = heard.last().unwrap();
            assert_eq!(broken.kind, "broken", "{heard:?}");
            assert_eq!(broken.data["fencing_token"], lease["fencing_token"]);
            assert_eq!(broken.data["owner"], "ci");
            assert_eq!(broken.data["reason"], "it hangs");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_of_another_gateway_expires_once_although_both_have_renewed_it() {
    let site = Site::redis(2).await;
    let mut reader = site.reader().await;
    let mut there = site.reader_at(1).await;
    let lease = acquire(&site.gateways[1], "a", &json!({"ttl_ms": 2_500})).await;
    // Two gateways that renew a lease within a second may both report its end.
    sleep(Duration::from_millis(1_300)).await;
    renew(site.gateway(), &lease).await;
    // The lease ends after all gateways that watch for ends have started to do so.
    acquire(site.gateway(), "b", &json!({"ttl_ms": 5_500})).await;
    for reader in [&mut reader, &mut there] {
        let is_last = |heard: &ReceivedEvent| heard.kind == "expired" && heard.data["name"] == "b";
        let heard = reader.up_to(is_last).await;
        let expired: Vec<_> = heard.iter().filter(|heard| is("expired")(heard)).collect();
        assert_eq!(expired.len(), 2, "{expired:?}");
        assert_eq!(expired[0].data["fencing_token"], lease["fencing_token"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_that_stops_tells_what_it_has_to_tell() {
    let site = Site::redis(2).await;
    let mut reader = site.reader().await;
    let other = &site.gateways[1];
    once(other, "a").await;
    other.lifecycle.stop(Duration::from_mins(1)).await.unwrap();
    reader.expect("acquired").await;
    reader.expect("released").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_sent_while_nobody_listens() {
    let site = Site::redis(2).await;
    let server = site.server.as_ref().unwrap();
    let published = async || {
        let info = server.text(&["INFO", "commandstats"]).await;
        let line = |line: &str| {
            line.strip_prefix("cmdstat_publish:calls=")
                .map(str::to_owned)
        };
        let calls = info.lines().find_map(line).unwrap_or_default();
        calls.split(',').next().unwrap().to_owned()
    };
    // Each gateway has examined its permissions at Redis by then.
    for gateway in &site.gateways {
        once(gateway, "a").await;
    }
    let before = published().await;
    for gateway in &site.gateways {
        for _ in 0..20 {
            once(gateway, "a").await;
        }
    }
    assert_eq!(published().await, before);
    let subscribers = server.run(&["PUBSUB", "NUMSUB", "lg:events"]).await;
    assert!(
        format!("{subscribers:?}").contains("int(0)"),
        "{subscribers:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_was_lost_leaves_a_gap_and_comes_back() {
    let site = Site::redis(2).await;
    let mut reader = site.reader().await;
    let server = site.server.as_ref().unwrap();
    server.run(&["CLIENT", "KILL", "TYPE", "pubsub"]).await;
    assert_eq!(reader.expect("gap").await["reason"], "connection-lost");
    // The other gateway has no reader any more, and learns that this gateway still has one.
    let other = &site.gateways[1];
    let lease = acquire(other, "a", &json!({})).await;
    release(other, &lease).await;
    let acquired = reader.expect("acquired").await;
    assert_eq!(acquired["fencing_token"], lease["fencing_token"]);
    reader.expect("released").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_ended_unheard_is_not_said_to_have_expired() {
    let site = Site::redis(2).await;
    let mut reader = site.reader().await;
    let server = site.server.as_ref().unwrap();
    let lease = acquire(site.gateway(), "a", &json!({"ttl_ms": 2_500})).await;
    reader.expect("acquired").await;
    // The key of the lease is removed without an event.
    server.run(&["DEL", "lg:{a}:lock"]).await;
    server.run(&["CLIENT", "KILL", "TYPE", "pubsub"]).await;
    assert_eq!(reader.expect("gap").await["reason"], "connection-lost");
    site.expires(&mut reader).await;
    // This lease ends later than the removed one would have ended.
    acquire(site.gateway(), "b", &json!({"ttl_ms": 3_500})).await;
    let heard = reader.up_to(is("expired")).await;
    assert_eq!(heard.last().unwrap().data["name"], "b", "{heard:?} {lease}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_of_other_gateways_go_on_after_the_server_was_away() {
    let mut site = Site::redis(2).await;
    let mut reader = site.reader().await;
    let server = site.server.as_mut().unwrap();
    server.kill();
    server.start_again().await;
    // The outage of the store is told, too.
    let heard = reader.up_to(is("gap")).await.pop().unwrap();
    assert_eq!(heard.data["reason"], "connection-lost");
    let other = &site.gateways[1];
    let deadline = Instant::now() + Duration::from_mins(1);
    // Soon the other gateway serves again and learns that this gateway has a reader.
    loop {
        post(other, "/locks/a", &json!({"ttl_ms": 100})).await;
        let heard = timeout(Duration::from_millis(200), reader.next()).await;
        if heard.is_ok_and(|heard| heard.is_some_and(|heard| heard.kind == "acquired")) {
            return;
        }
        assert!(Instant::now() < deadline, "nothing is heard");
    }
}

/// Acquires and releases some locks, each time at another gateway.
async fn cycle(site: &Site, client: usize) {
    for round in 0..12 {
        let gateway = |offset: usize| -> &Service { &site.gateways[(client + round + offset) % 2] };
        let target = format!("/locks/n{}", (client + round) % 3);
        let body = json!({"wait_ms": 20_000, "ttl_ms": 20_000, "owner": format!("c{client}")});
        let lease: Value = post(gateway(0), &target, &body).await.json();
        if round % 3 == 0 {
            renew(gateway(1), &lease).await;
        }
        release(gateway(round % 2), &lease).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_lease_of_many_clients_begins_and_ends_once_at_every_gateway() {
    let site = Site::redis(2).await;
    let mut readers = [site.reader().await, site.reader_at(1).await];
    tokio::join!(
        cycle(&site, 0),
        cycle(&site, 1),
        cycle(&site, 2),
        cycle(&site, 3)
    );
    let end = acquire(site.gateway(), "end", &json!({"ttl_ms": 500})).await;
    let mut all = Vec::new();
    for reader in &mut readers {
        let heard = reader.up_to(is("expired")).await;
        assert_eq!(
            heard.last().unwrap().data["fencing_token"],
            end["fencing_token"]
        );
        let mine: Vec<_> = heard
            .iter()
            .filter(|heard| heard.brief().contains(" n"))
            .collect();
        let count = |kind| mine.iter().filter(|heard| heard.kind == kind).count();
        assert_eq!((count("acquired"), count("released")), (48, 48));
        let acquired = mine.iter().filter(|heard| heard.kind == "acquired");
        all.push(acquired.map(|heard| key(heard)).collect::<BTreeSet<_>>());
    }
    assert_eq!(all[0].len(), 48);
    assert_eq!(all[0], all[1]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_that_comes_later_is_heard_at_once() {
    let mut site = Site::redis(1).await;
    let mut reader = site.reader().await;
    let start = Instant::now();
    for lock in ["a", "b", "c", "d", "e"] {
        site.join();
        let newcomer = site.gateways.last().unwrap();
        let is_it = |heard: &ReceivedEvent| heard.data["name"] == lock;
        loop {
            once(newcomer, lock).await;
            let heard = timeout(Duration::from_millis(50), reader.up_to(is_it)).await;
            if heard.is_ok() {
                break;
            }
        }
    }
    // Gateways are asked for events every three seconds in any case: five waits for that take at least twelve.
    assert!(start.elapsed() < Duration::from_secs(10), "{start:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_ended_where_nobody_could_be_asked_is_not_said_to_have_expired() {
    let site = Site::redis(2).await;
    let server = site.server.as_ref().unwrap();
    for gateway in &site.gateways {
        once(gateway, "first").await;
    }
    // Gateways may use their own channels and the events, but not the channel on which a gateway says that it has
    // readers.
    let mut rules = vec!["ACL", "SETUSER", "default", "resetchannels"];
    rules.extend(["&lg:events", "&lg:gw:????????????????"]);
    server.run(&rules).await;
    let mut reader = Reader::all(site.gateway()).await;
    let lease = acquire(site.gateway(), "a", &json!({"ttl_ms": 600})).await;
    reader.expect("acquired").await;
    release(&site.gateways[1], &lease).await;
    // Longer than the lease lives and the next check of its end takes.
    sleep(Duration::from_millis(1_500)).await;
    acquire(site.gateway(), "b", &json!({})).await;
    let heard = reader.up_to(|heard| heard.data["name"] == "b").await;
    assert_eq!(heard.len(), 1, "{heard:?}");
}

/// How long a test waits for the subscriber, and for its messages.
const SOON: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_happens_in_one_database_is_not_told_in_another() {
    let mut site = Site::redis(1).await;
    site.join_database(1);
    site.join_database(1);
    // Each database has a gateway with a reader.
    let mut first = Reader::all(site.gateway()).await;
    let mut second = Reader::all(&site.gateways[1]).await;
    let there = [&site.gateways[1], &site.gateways[2]];
    let deadline = Instant::now() + SOON;
    let heard_there = loop {
        once(there[1], "there").await;
        let expected = second.up_to(|heard| heard.data["name"] == "there");
        if let Ok(heard) = timeout(Duration::from_millis(300), expected).await {
            break heard;
        }
        assert!(Instant::now() < deadline, "nothing was heard of its own");
    };
    let lease = acquire(there[0], "there", &json!({"ttl_ms": 60_000})).await;
    renew(there[1], &lease).await;
    let broken = post(
        there[1],
        "/locks/there/break",
        &json!({"reason": "why not"}),
    )
    .await;
    assert_eq!(broken.status, 200, "{}", broken.body);
    for _ in 0..20 {
        once(site.gateway(), "here").await;
    }
    acquire(there[0], "last", &json!({})).await;
    acquire(site.gateway(), "last", &json!({})).await;
    for (reader, other) in [(&mut first, "there"), (&mut second, "here")] {
        let heard = reader.up_to(|heard| heard.data["name"] == "last").await;
        assert!(
            heard.iter().all(|heard| heard.data["name"] != other),
            "{heard:?}"
        );
    }
    assert!(
        heard_there
            .iter()
            .all(|heard| heard.data["name"] == "there")
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_to_all_gateways_stay_in_their_database() {
    let mut site = Site::redis(1).await;
    site.join_database(1);
    let server = site.server.as_ref().unwrap();
    let url = format!("redis://127.0.0.1:{}", server.port());
    let client = bb8_redis::redis::Client::open(url).unwrap();
    let mut heard = client.get_async_pubsub().await.unwrap();
    let channels = ["lg:events", "lg:gw:all", "lg:events:1", "lg:gw:all:1"];
    heard.subscribe(&channels).await.unwrap();
    let mut heard = heard.into_on_message();
    let there = &site.gateways[1];
    let _reader = Reader::all(there).await;
    // The end of the lease is published by the script, because no gateway has a waiter.
    let lease = acquire(there, "secret-name", &json!({"ttl_ms": 60_000})).await;
    let broken = post(
        there,
        "/locks/secret-name/break",
        &json!({"reason": "why not"}),
    )
    .await;
    assert_eq!(broken.status, 200, "{}", broken.body);
    drop(lease);
    let mut seen = Vec::new();
    loop {
        let message = timeout(SOON, heard.next()).await;
        let message = message.expect("it is told").unwrap();
        let text = String::from_utf8_lossy(message.get_payload_bytes()).into_owned();
        let message = (message.get_channel_name().to_owned(), text);
        let is_it = message.1.starts_with("broken ") && message.1.ends_with(" secret-name");
        seen.push(message);
        if is_it {
            break;
        }
    }
    for (channel, text) in seen {
        assert!(
            channel.ends_with(":1") || !text.contains("secret-name"),
            "{channel}: {text}"
        );
    }
}

#[tokio::test]
async fn an_outage_and_a_restart_of_the_store_are_told_by_each_gateway_and_kept() {
    let mut site = Site::redis(2).await;
    let mut readers = [
        Reader::all(&site.gateways[0]).await,
        Reader::all(&site.gateways[1]).await,
    ];
    // Each gateway must have seen its store in good order.
    for gateway in &site.gateways {
        let uptime = async || {
            gateway.get("/stats").await.json()["uptime_ms"]
                .as_u64()
                .unwrap()
        };
        once(gateway, "ready").await;
        let since = uptime().await;
        let looks = async {
            while uptime().await <= since + 2_000 {
                sleep(Duration::from_millis(50)).await;
            }
        };
        timeout(Duration::from_mins(1), looks)
            .await
            .expect("the gateway looks at its store");
    }
    let server = site.server.as_mut().unwrap();
    server.kill();
    let is_change = |heard: &ReceivedEvent| heard.kind == "store-changed";
    let mut told = [Vec::new(), Vec::new()];
    for (reader, told) in readers.iter_mut().zip(&mut told) {
        told.push(reader.up_to(is_change).await.pop().unwrap().data);
    }
    server.start_again().await;
    let address = format!("127.0.0.1:{}", server.port());
    for (at, (reader, told)) in readers.iter_mut().zip(&mut told).enumerate() {
        for _ in 0..2 {
            told.push(reader.up_to(is_change).await.pop().unwrap().data);
        }
        let mut kinds: Vec<_> = told.iter().map(|it| it["change"]["kind"].clone()).collect();
        assert_eq!(kinds[0], "away", "{told:?}");
        kinds.sort_by_key(ToString::to_string);
        assert_eq!(kinds, ["away", "back", "restarted"], "{told:?}");
        for event in told.iter() {
            assert!(
                event["change"]["text"].as_str().unwrap().contains(&address),
                "{event}"
            );
            assert!(
                event.get("name").is_none() && event["at"].is_string(),
                "{event}"
            );
        }
        let stats = site.gateways[at].get("/stats").await.json();
        let kept = stats["store_changes"].as_array().unwrap().iter().rev();
        let kept: Vec<_> = kept.map(|it| (&it["kind"], &it["text"])).collect();
        let told = told
            .iter()
            .map(|it| (&it["change"]["kind"], &it["change"]["text"]));
        assert_eq!(kept, told.collect::<Vec<_>>());
    }
}
