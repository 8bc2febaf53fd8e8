//! Exchanged keys: their end, their revocation, and the secrets that gateways share.

use latchgate::{
    auth::{Access, KeysWatch, Refusal},
    config::AuthConfig,
};
use tokio::sync::Notify;

use super::exchange::{KEY, NOW, Rig, file};
use crate::{
    api::prelude::*,
    support::{MockIssuer, Mode, Signer, until},
};

const SECRETS: [&str; 2] = [
    "00000000000000000000000000000000",
    "11111111111111111111111111111111",
];

#[tokio::test]
async fn a_stream_keeps_its_lease_beyond_the_end_of_its_key_and_no_longer_than_a_day() {
    let rig = Rig::start(KEY).await;
    let key = rig.key("acme/web").await;
    let headers = [("authorization", key.as_str()), JSON[0]];
    let body = r#"{"ttl_ms": 3000}"#;
    let mut stream = rig
        .service
        .stream("POST /locks/deploy:web/hold", &headers, body)
        .await;
    read_until(&mut stream, "event: granted").await;
    rig.clock.advance(Duration::from_hours(2));
    for _ in 0..2 {
        let seen = read_until(&mut stream, "event: renewed").await;
        assert!(!seen.contains("event: lost"), "{seen}");
    }
    rig.clock.advance(Duration::from_hours(22));
    let last = read_until(&mut stream, "event: lost").await;
    assert!(last.contains(r#"{"reason":"revoked"}"#), "{last}");
}

#[tokio::test]
async fn a_waiter_waits_no_longer_than_its_key_lasts() {
    let rig = Rig::start(&format!("{KEY}session_ms = 2000\n")).await;
    let (web, api) = (rig.key("acme/web").await, rig.key("acme/api").await);
    rig.ask("POST /locks/deploy:web", &web, "{}").await.is(201);
    let began = Instant::now();
    let waiting = rig.ask("POST /locks/deploy:web", &api, r#"{"wait_ms": 50000}"#);
    let ending = async {
        sleep(Duration::from_millis(500)).await;
        rig.clock.advance(Duration::from_secs(2));
    };
    let (answer, ()) = tokio::join!(waiting, ending);
    assert_eq!(answer.problem(), (401, "unauthorized"));
    assert!(began.elapsed() < Duration::from_secs(20));
}

#[tokio::test]
async fn an_ended_key_begins_nothing_and_keeps_and_releases_what_it_has() {
    let rig = Rig::start(&format!("{KEY}break = ['deploy:']\norder = ['deploy:']\n")).await;
    let key = rig.key("acme/web").await;
    let group = r#"{"names": ["deploy:a", "deploy:b"], "ttl_ms": 60000}"#;
    let token = rig.ask("POST /locks", &key, group).await.is(201)["token"].clone();
    let token = token.as_str().unwrap();
    let reserve = r#"{"reserve": {"until": "2026-11-20T12:30:00Z", "reason": "test"}}"#;
    let refused = [
        ("POST /locks", r#"{"names": ["deploy:c", "deploy:d"]}"#),
        ("POST /locks/deploy:e", "{}"),
        ("POST /locks/deploy:f", reserve),
        ("POST /locks/deploy:g", r#"{"order": 7}"#),
        ("POST /locks/deploy:h/hold", "{}"),
        ("POST /locks/deploy:a/break", r#"{"reason": "test"}"#),
        ("GET /locks/deploy:a/history", ""),
        ("GET /locks", ""),
        ("GET /events", ""),
    ];
    rig.clock.advance(Duration::from_hours(1));
    for (line, body) in refused {
        let answer = rig.ask(line, &key, body).await;
        assert_eq!(answer.problem(), (401, "unauthorized"), "{line}");
    }
    let headers = [("authorization", key.as_str()), ("lock-token", token)];
    for line in [
        "PUT /locks?names=deploy:a,deploy:b",
        "PUT /locks/deploy:a/renew",
    ] {
        rig.service.call(line, &headers).await.is(200);
    }
    let adopted = rig.service.open("POST /locks/deploy:a/hold", &headers, "");
    let mut stream = adopted.await.into_body();
    read_until(&mut stream, "event: granted").await;
    rig.service
        .call("DELETE /locks?names=deploy:a,deploy:b", &headers)
        .await
        .is(200);
}

#[tokio::test]
async fn a_live_key_may_do_what_an_ended_key_may_not() {
    let rig = Rig::start(&format!("{KEY}break = ['deploy:']\norder = ['deploy:']\n")).await;
    let key = rig.key("acme/web").await;
    let reserve = r#"{"reserve": {"until": "2026-11-20T12:30:00Z", "reason": "test"}}"#;
    for (line, body, status) in [
        ("POST /locks/deploy:f", reserve, 201),
        ("POST /locks/deploy:g", r#"{"order": 7}"#, 201),
        ("POST /locks/deploy:g/break", r#"{"reason": "test"}"#, 200),
        ("GET /locks/deploy:g/history", "", 200),
    ] {
        let answer = rig.ask(line, &key, body).await;
        assert_eq!(answer.status, status, "{line} {}", answer.body);
    }
}

#[tokio::test]
async fn a_revocation_ends_streams_at_once() {
    let rig = Rig::start(KEY).await;
    let key = rig.key("acme/web").await;
    let headers = [("authorization", key.as_str()), JSON[0]];
    let mut events = rig.service.stream("GET /events", &headers, "").await;
    read_until(&mut events, "\n\n").await;
    let mut held = rig
        .service
        .stream("POST /locks/acme%2Fweb%2Fa/hold", &headers, "{}")
        .await;
    read_until(&mut held, "event: granted").await;
    // Another permission does not end them, although the names of the caller are made again.
    rig.replace(&KEY.replace("reserve = ['deploy:']", ""));
    let began = Instant::now();
    rig.replace(&format!("{KEY}sessions_after = 2026-11-20T12:00:01Z\n"));
    let last = read_until(&mut events, "event: end").await;
    assert!(last.contains("revoked"), "{last}");
    let last = read_until(&mut held, "event: lost").await;
    assert!(last.contains("revoked"), "{last}");
    assert!(began.elapsed() < Duration::from_secs(10));
}

#[tokio::test]
async fn a_job_that_says_much_of_itself_hides_no_link_to_it() {
    let rig = Rig::start(&format!("{KEY}break = ['deploy:']\n")).await;
    let key = rig.key("acme/web").await;
    let long = "x".repeat(300);
    let body = json!({"metadata": {"a": long, "b": long, "c": long, "z": long}}).to_string();
    rig.ask("POST /locks/deploy:web", &key, &body).await.is(201);
    let end = r#"{"reason": "test"}"#;
    let broken = rig.ask("POST /locks/deploy:web/break", &key, end).await;
    broken.is(200);
    until("the history has the link", || async {
        let history = rig.ask("GET /locks/deploy:web/history", &key, "").await;
        history.body.contains("https://ci.example/acme/web/7")
    })
    .await;
}

#[tokio::test]
async fn an_issuer_that_drips_is_given_up() {
    let signer = Signer::new("e");
    let issuer = MockIssuer::start(signer.jwks()).await;
    issuer.becomes(Mode::Drips);
    let rig = Rig::with(KEY, signer, issuer);
    let began = Instant::now();
    let answer = rig.send(&rig.token(&rig.claims("acme/web"))).await;
    assert_eq!(answer.problem(), (503, "issuer-unavailable"));
    assert!(began.elapsed() < Duration::from_secs(15));
    rig.issuer.becomes(Mode::Serves);
    until("the issuer serves", || async {
        rig.send(&rig.token(&rig.claims("acme/web"))).await.status == 201
    })
    .await;
}

#[tokio::test]
async fn each_caller_has_limits_of_its_own_and_those_of_the_key_are_the_sum() {
    let limits =
        "per_caller = { max_leases = 2, max_waiters = 1, requests_per_second = 1, burst = 5 }\n";
    let rig = Rig::start(&format!("{KEY}max_leases = 3\nmax_waiters = 1\n{limits}")).await;
    let (web, api) = (rig.key("acme/web").await, rig.key("acme/api").await);
    let acquire = async |key: &str, lock: &str| {
        let line = format!("POST /locks/deploy:{lock}");
        rig.ask(&line, key, "{}").await.status
    };
    let seen = [acquire(&web, "a").await, acquire(&web, "b").await];
    assert_eq!((seen, acquire(&web, "c").await), ([201, 201], 429));
    assert_eq!(acquire(&api, "c").await, 201);
    // The other caller has room, and the key has none.
    assert_eq!(acquire(&api, "d").await, 429);
    // With the exchange, these are more than five requests of one caller.
    let looks = async |key: &str| rig.ask("GET /locks/x", key, "").await.status;
    let mut seen = Vec::new();
    for _ in 0..3 {
        seen.push(looks(&web).await);
    }
    assert_eq!(seen.last(), Some(&429), "{seen:?}");
    assert_eq!(looks(&api).await, 200);
    // A new key is the same caller, and a change of the keys forgets no lease.
    rig.replace(&format!(
        "{KEY}max_leases = 4\nper_caller = {{ max_leases = 2 }}\n"
    ));
    assert_eq!(acquire(&rig.key("acme/web").await, "e").await, 429);
    assert_eq!(acquire(&api, "e").await, 201);
    assert_eq!(acquire(&api, "f").await, 429);
}

/// A gateway without a service, which shares an issuer and a file of secrets with others.
struct Peer {
    gate: Gate,
    clock: Arc<ManualClock>,
    asked: Arc<Notify>,
    directory: TempDir,
    _lifecycle: Lifecycle,
}

impl Peer {
    /// A gateway with a session secret file of its own, and a task that reads its files again.
    fn start(issuer: &MockIssuer, secrets: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let paths = ["keys", "secrets"].map(|name| directory.path().join(name));
        fs::write(&paths[0], file(issuer, KEY)).unwrap();
        fs::write(&paths[1], secrets).unwrap();
        let config = AuthConfig {
            session_secret_file: paths[1].to_str().unwrap().to_owned(),
            ..AuthConfig::default()
        };
        let (watch, ring) = KeysWatch::open(KeysFile::new(&paths[0]), &config).unwrap();
        let seal = SessionSeal::open_configured(&config).unwrap();
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(NOW);
        let clock = Arc::new(ManualClock::at(now));
        let gate = Gate::guarded(ring, seal, &config, clock.clone());
        let (asked, lifecycle) = (Arc::new(Notify::new()), Lifecycle::new());
        let current = watch.keep_current(
            gate.clone(),
            clock.clone(),
            Arc::clone(&asked),
            lifecycle.clone(),
        );
        lifecycle.spawn_background(current);
        Self {
            gate,
            clock,
            asked,
            directory,
            _lifecycle: lifecycle,
        }
    }

    /// Replaces the session secret file, and asks the gateway to read it, as HUP does.
    fn put(&self, secrets: &str) {
        fs::write(self.directory.path().join("secrets"), secrets).unwrap();
        self.asked.notify_one();
    }

    async fn exchange(&self, token: &str) -> String {
        let (_, key) = self.gate.exchange(token, None, None).await.unwrap();
        key.expose().to_owned()
    }

    fn admit(&self, key: &str) -> Result<Access, Refusal> {
        self.gate.admit(Some(key), None)
    }
}

fn token(issuer: &MockIssuer, signer: &Signer) -> String {
    let claims = json!({
        "iss": issuer.url(), "aud": "https://locks.example", "sub": "repo:acme/web", "iat": NOW, "exp": NOW + 300,
        "repository": "acme/web", "repository_owner_id": "1", "event_name": "push", "run": 7,
    });
    signer.sign(&json!({"alg": "ES256", "kid": "e"}), &claims.to_string())
}

#[tokio::test]
async fn two_gateways_replace_their_secret_and_no_key_ends() {
    let signer = Signer::new("e");
    let issuer = MockIssuer::start(signer.jwks()).await;
    let token = token(&issuer, &signer);
    let [old, new] = SECRETS;
    let peers = [(); 2].map(|()| Peer::start(&issuer, old));
    let first = peers[0].exchange(&token).await;
    let (below, swapped) = (format!("{old}\n\n{new}\n"), format!("{new}\n\n{old}\n"));
    for secrets in [&below, &swapped] {
        for at in 0..2 {
            peers[at].put(secrets);
            // Until it has read the file, a gateway seals as before: both opens are checked in either state.
            for _ in 0..20 {
                for (one, other) in [(0, 1), (1, 0)] {
                    let key = peers[one].exchange(&token).await;
                    assert!(peers[other].admit(&key).is_ok());
                }
                sleep(Duration::from_millis(10)).await;
            }
            assert!(peers[at].admit(&first).is_ok());
        }
    }
    peers[0].put(new);
    until("the old secret is gone", || async {
        peers[0].admit(&first).is_err()
    })
    .await;
    let key = peers[1].exchange(&token).await;
    assert!(peers[0].admit(&key).is_ok());
}

#[tokio::test]
async fn a_secret_that_cannot_be_used_is_told_and_changes_nothing() {
    let signer = Signer::new("e");
    let issuer = MockIssuer::start(signer.jwks()).await;
    let peer = Peer::start(&issuer, SECRETS[0]);
    let key = peer.exchange(&token(&issuer, &signer)).await;
    peer.put("short");
    until("it is told", || async { peer.gate.is_outdated() }).await;
    assert!(peer.admit(&key).is_ok());
    peer.put(SECRETS[0]);
    until("it is read", || async { !peer.gate.is_outdated() }).await;
    assert!(peer.admit(&key).is_ok());
}

#[tokio::test]
async fn a_key_from_a_clock_that_is_ahead_waits_for_its_time() {
    let signer = Signer::new("e");
    let issuer = MockIssuer::start(signer.jwks()).await;
    let token = token(&issuer, &signer);
    let [here, ahead] = [(); 2].map(|()| Peer::start(&issuer, SECRETS[0]));
    ahead.clock.advance(Duration::from_secs(59));
    let soon = ahead.exchange(&token).await;
    assert!(here.admit(&soon).is_ok());
    ahead.clock.advance(Duration::from_secs(100));
    let later = ahead.exchange(&token).await;
    assert!(ahead.admit(&later).is_ok());
    assert_eq!(here.admit(&later).unwrap_err(), Refusal::ExchangeOver);
    here.clock.advance(Duration::from_secs(100));
    assert!(here.admit(&later).is_ok());
}

#[tokio::test]
async fn an_issuer_that_is_added_later_has_a_secret_that_outlives_the_process() {
    let signer = Signer::new("e");
    let issuer = MockIssuer::start(signer.jwks()).await;
    let (directory, plain) = (tempfile::tempdir().unwrap(), Key::new());
    let parse = |text: &str| KeysFile::new("keys.toml").parse(text).unwrap();
    let plain = plain.entry("ops", "view = ['*']");
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(NOW);
    let config = AuthConfig::default();
    let gateway = || {
        let clock = Arc::new(ManualClock::at(now));
        let gate = Gate::guarded(parse(&plain), SessionSeal::random(), &config, clock);
        gate.keep_exchanged_in(directory.path());
        gate
    };
    let first = gateway();
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    first.replace(parse(&file(&issuer, KEY)));
    let token = token(&issuer, &signer);
    let (_, key) = first.exchange(&token, None, None).await.unwrap();
    let second = gateway();
    second.replace(parse(&file(&issuer, KEY)));
    assert!(second.admit(Some(key.expose()), None).is_ok());
}
