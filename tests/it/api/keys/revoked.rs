//! An API key that is revoked while its caller waits for a lock or has a hold.

use latchgate::{auth::Permission, lock::NamePrefix};

use crate::api::prelude::*;

/// An idempotency key: with it, the store would keep a position in the queue.
const KEPT: (&str, &str) = ("idempotency-key", "0b2f6a4e-5a0c-4d53-9d0c-1f5d7a7f4a11");

const WAITING: &str = r#"{"wait_ms": 50000}"#;

/// Each way to revoke a key, with the keys file after it.
fn ways(key: &Key) -> [(&'static str, String); 4] {
    let other = Key::new().entry("other", "acquire = ['*']");
    let rotated = Key::new().entry("ci", "acquire = ['*']");
    [
        ("removed", other.clone()),
        ("rotated", rotated),
        (
            "permits less",
            key.entry("ci", "acquire = ['b']\nview = ['*']"),
        ),
        (
            "expired",
            key.entry("ci", "acquire = ['*']\nexpires_at = 2020-01-01T00:00:00Z"),
        ),
    ]
}

/// A gateway with a key that may acquire every lock.
fn with_key() -> (Key, Service, Gate) {
    let key = Key::new();
    let file = key.entry("ci", "acquire = ['*']");
    let (service, gate, _) = Service::with_gate(Config::default(), &file);
    (key, service, gate)
}

#[tokio::test]
async fn who_waits_is_refused_at_once_and_leaves_the_queue() {
    for way in 0..4 {
        let (key, service, gate) = with_key();
        service
            .script
            .acquire
            .extend([0, 1].map(|ahead| Ok(queued(ahead))));
        let headers = [key.auth(), JSON[0], KEPT];
        let waiting = service.open("POST /locks/a", &headers, WAITING);
        let taken_back = async {
            let mut stream = service
                .stream("POST /locks/a/hold", &headers, WAITING)
                .await;
            read_until(&mut stream, "queued").await;
            replaces(&gate, &ways(&key)[way].1);
            read_until(&mut stream, "refused").await
        };
        let (answer, last) = tokio::join!(waiting, taken_back);
        let answer = ApiResponse::read(answer).await;
        let way = ways(&key)[way].0;
        assert_eq!(answer.problem(), (401, "unauthorized"), "{way}");
        assert!(last.contains("\"code\":\"unauthorized\""), "{way}: {last}");
        let left = |asked: &StoreCall| matches!(asked, StoreCall::Leave(None));
        assert_eq!(service.script.count(left), 2, "{way}");
    }
}

#[tokio::test]
async fn a_change_that_leaves_the_key_as_it_is_disturbs_nobody() {
    let (key, service, gate) = with_key();
    let headers = [key.auth(), JSON[0]];
    service.script.acquire.ok(queued(0));
    let waiting = service.open("POST /locks/a", &headers, WAITING);
    let meanwhile = async {
        service.is_asked(1).await;
        let (new, other) = (Key::new(), Key::new());
        let both = format!("'{}', '{}'", new.secret(), key.secret());
        let rotating = format!("[[key]]\nname = 'ci'\nsecrets = [{both}]\nacquire = ['a']\n");
        replaces(&gate, &(rotating + &other.entry("other", "")));
        until("it is told", || {
            service.script.tell(&News::Granted(held())) == 1
        })
        .await;
    };
    let (answer, ()) = tokio::join!(waiting, meanwhile);
    assert_eq!(answer.status(), 201);
}

#[tokio::test]
async fn a_lock_that_was_granted_to_a_key_that_is_gone_is_given_back() {
    let (key, service, gate) = with_key();
    let headers = [key.auth(), JSON[0]];
    service.script.paused.set();
    let asking = service.open("POST /locks/a", &headers, "");
    let taken_back = async {
        service.is_asked(1).await;
        replaces(&gate, &ways(&key)[0].1);
        service.script.paused.lift();
    };
    let (answer, ()) = tokio::join!(asking, taken_back);
    assert_eq!(answer.status(), 401);
    service.gives_back(1).await;
}

#[tokio::test]
async fn a_held_lock_is_lost_and_left_to_its_ttl() {
    for way in 0..4 {
        let (key, service, gate) = with_key();
        let headers = [key.auth(), JSON[0]];
        let mut stream = service.stream("POST /locks/a/hold", &headers, "").await;
        read_until(&mut stream, "granted").await;
        let (name, file) = &ways(&key)[way];
        let taken_back = Instant::now();
        replaces(&gate, file);
        let last = read_until(&mut stream, "event: lost").await;
        assert!(last.contains(r#"{"reason":"revoked"}"#), "{name}: {last}");
        // The stream ends at once, and not when the next renewal is due.
        assert!(taken_back.elapsed() < Duration::from_secs(5), "{name}");
        assert!(stream.frame().await.is_none(), "{name}");
        drop(stream);
        // The lease is neither renewed nor released, so that its holder has time to stop.
        let asked = service.script.asked();
        let only = |asked: &StoreCall| matches!(asked, StoreCall::Acquire(_));
        assert!(asked.iter().all(only), "{name}: {asked:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_held_lock_is_not_renewed_after_its_key_has_expired() {
    let key = Key::new();
    let file = key.entry("ci", "acquire = ['*']\nexpires_at = 2026-11-20T12:00:15Z");
    let (service, _gate, clock) = Service::with_gate(Config::default(), &file);
    let headers = [key.auth(), JSON[0]];
    let mut stream = service.stream("POST /locks/a/hold", &headers, "").await;
    read_until(&mut stream, "granted").await;
    read_until(&mut stream, "renewed").await;
    clock.advance(Duration::from_secs(15));
    // The end of the key is not announced: the gateway sees it when the next renewal is due.
    let renewals = || {
        service
            .script
            .count(|asked| matches!(asked, StoreCall::Renew(..)))
    };
    let before = renewals();
    let last = read_until(&mut stream, "event: lost").await;
    assert!(last.contains("revoked"), "{last}");
    assert_eq!(renewals(), before);
}

#[tokio::test]
async fn a_key_that_is_gone_adopts_and_renews_nothing() {
    let (key, service, gate) = with_key();
    replaces(&gate, &ways(&key)[0].1);
    let headers = [key.auth(), ("lock-token", TOKEN)];
    for line in ["PUT /locks/a/renew", "POST /locks/a/hold"] {
        assert_eq!(service.call(line, &headers).await.status, 401, "{line}");
    }
    let released = service.call("DELETE /locks/a", &headers).await;
    assert_eq!(released.status, 204, "the token is enough");
}

#[tokio::test]
async fn a_permission_on_every_lock_is_that_of_the_key_as_it_is_now() {
    let key = Key::new();
    let whole = key.entry("ci", "view = ['*']");
    let (_service, gate, _) = Service::with_gate(Config::default(), &whole);
    let presented = key.header.strip_prefix("Bearer ");
    let access = gate.admit(presented, None).unwrap();
    assert!(access.still_permits_all(Permission::View));
    assert!(!access.still_permits_all(Permission::Acquire));
    replaces(&gate, &key.entry("ci", "view = ['team:']"));
    assert!(!access.still_permits_all(Permission::View));
    assert!(
        access.permits_all(Permission::View, &NamePrefix::default()),
        "as it was when the caller was admitted"
    );
    replaces(&gate, &whole);
    assert!(access.still_permits_all(Permission::View));
    replaces(&gate, &Key::new().entry("other", "view = ['*']"));
    assert!(
        !access.still_permits_all(Permission::View),
        "the key is gone"
    );
}
