//! Programs exchange ID tokens for keys: `POST /session/token`.

use std::path::PathBuf;

use latchgate::{audit::Audit, config::AuditConfig};

use crate::{
    api::prelude::*,
    support::{MockIssuer, Mode, Signer, until},
};

/// A gateway with an issuer, over an embedded store.
struct Rig {
    service: Service,
    gate: Gate,
    clock: Arc<ManualClock>,
    signer: Signer,
    issuer: MockIssuer,
    audit_log: PathBuf,
    directory: TempDir,
}

/// The wall time at the start, in seconds since 1970.
const NOW: u64 = 1_795_176_000;
const AUDIENCE: &str = "https://locks.example";
const KEY: &str = "[[key]]\nname = 'ci'\nissuer = 'i'\nclaims = { repository_owner_id = '1', event_name = 'push' }\n\
                   acquire = ['deploy:', '{repository}/']\nview = ['*']\nreserve = ['deploy:']\n\
                   owner = '{repository} #{run}'\nmetadata = { run = 'https://ci.example/{repository}/{run}' }\n";
/// An idempotency key that two programs have chosen.
const SAME: (&str, &str) = ("idempotency-key", "5f0c2f5e-9d1b-4c58-9a3b-6f5f2b1f7d11");

impl Rig {
    async fn start(keys: &str) -> Self {
        let signer = Signer::new("e");
        let issuer = MockIssuer::start(signer.jwks()).await;
        Self::with(keys, signer, issuer)
    }

    fn with(keys: &str, signer: Signer, issuer: MockIssuer) -> Self {
        let directory = tempfile::tempdir().unwrap();
        // Leases do not end while a test moves the clock of the keys.
        let store_clock = ManualClock::at(SystemTime::UNIX_EPOCH + Duration::from_secs(NOW));
        let store = EmbeddedStore::open(
            directory.path(),
            Arc::new(store_clock),
            latchgate::config::OrderLimits::default(),
        );
        let clock = Arc::new(ManualClock::at(
            SystemTime::UNIX_EPOCH + Duration::from_secs(NOW),
        ));
        let ring = KeysFile::new("keys.toml")
            .parse(&file(&issuer, keys))
            .unwrap();
        let config = Config::default();
        let gate = Gate::guarded(ring, SessionSeal::random(), &config.auth, clock.clone());
        let audit_log = directory.path().join("audit");
        let audit = AuditConfig {
            path: audit_log.to_str().unwrap().to_owned(),
        };
        let audit = Audit::open(&audit, clock.clone()).unwrap();
        let lifecycle = Lifecycle::new();
        lifecycle.spawn_background(gate.clone().keep_issuers(lifecycle.clone()));
        let service = Service::audited(Arc::new(store.unwrap()), config, gate.clone(), audit);
        Self {
            service,
            gate,
            clock,
            signer,
            issuer,
            audit_log,
            directory,
        }
    }

    /// The claims of a job of this repository.
    fn claims(&self, repository: &str) -> Value {
        json!({
            "iss": self.issuer.url(), "aud": AUDIENCE, "sub": format!("repo:{repository}"),
            "iat": NOW, "exp": NOW + 300, "repository": repository, "repository_owner_id": "1",
            "event_name": "push", "run": 7,
        })
    }

    fn token(&self, claims: &Value) -> String {
        self.signer
            .sign(&json!({"alg": "ES256", "kid": "e"}), &claims.to_string())
    }

    async fn send(&self, token: &str) -> ApiResponse {
        let body = json!({"id_token": token}).to_string();
        self.service.ask("POST /session/token", JSON, body).await
    }

    /// The header with the key of a job of this repository.
    async fn key(&self, repository: &str) -> String {
        let answer = self
            .send(&self.token(&self.claims(repository)))
            .await
            .is(201);
        format!("Bearer {}", answer["key"].as_str().unwrap())
    }

    /// Sends a request with an exchanged key and a JSON body.
    async fn ask(&self, line: &str, key: &str, body: &str) -> ApiResponse {
        self.service
            .ask(line, &[("authorization", key), JSON[0]], body.to_owned())
            .await
    }

    async fn refusal(&self, token: &str) -> String {
        let answer = self.send(token).await;
        assert_eq!(answer.problem(), (401, "unauthorized"));
        let detail = answer["detail"].as_str().unwrap().to_owned();
        let class = detail.strip_prefix("The ID token is refused (").unwrap();
        class.split_once(')').unwrap().0.to_owned()
    }

    fn replace(&self, keys: &str) {
        replaces(&self.gate, &file(&self.issuer, keys));
    }
}

fn file(issuer: &MockIssuer, keys: &str) -> String {
    format!(
        "[[issuer]]\nname = 'i'\nurl = '{}'\naudience = '{AUDIENCE}'\n{keys}",
        issuer.url()
    )
}

#[tokio::test]
async fn a_program_has_the_permissions_of_the_key_that_its_claims_match() {
    let rig = Rig::start(KEY).await;
    let answer = rig.send(&rig.token(&rig.claims("acme/web"))).await.is(201);
    assert_eq!(
        (&answer["expires_in_ms"], &answer["name"]),
        (&json!(3_600_000), &json!("ci"))
    );
    let key = format!("Bearer {}", answer["key"].as_str().unwrap());
    assert!(key.starts_with("Bearer lgx_") && key.len() < 1_500, "{key}");
    for (line, status) in [
        ("POST /locks/deploy:web", 201),
        ("POST /locks/acme%2Fweb%2Fbuild", 201),
        ("POST /locks/acme%2Fapi%2Fbuild", 403),
        ("POST /locks/acme%2Fweb", 403),
        ("POST /locks/other", 403),
        ("GET /locks/other", 200),
        ("GET /metrics", 403),
    ] {
        assert_eq!(rig.ask(line, &key, "").await.status, status, "{line}");
    }
    let session = rig.ask("GET /session", &key, "").await.is(200).json();
    assert_eq!(session["name"], "ci (repo:acme/web)");
    assert_eq!(session["expires_in_ms"], 3_600_000);
    assert_eq!(
        session["permissions"]["acquire"],
        json!(["deploy:", "acme/web/"])
    );
}

#[tokio::test]
async fn the_token_may_be_in_the_header_and_a_body_wins() {
    let rig = Rig::start(KEY).await;
    let token = rig.token(&rig.claims("acme/web"));
    let header = format!("Bearer {token}");
    let with = [("authorization", header.as_str())];
    rig.service.call("POST /session/token", &with).await.is(201);
    let proxy = [("authorization", "Bearer lgk_of_a_proxy"), JSON[0]];
    let body = json!({"id_token": token}).to_string();
    rig.service
        .ask("POST /session/token", &proxy, body)
        .await
        .is(201);
    assert_eq!(rig.refusal("").await, "malformed");
}

#[tokio::test]
async fn a_lease_names_the_job_and_keeps_what_the_program_said() {
    let rig = Rig::start(KEY).await;
    let key = rig.key("acme/web").await;
    let body = r#"{"owner": "me@runner", "metadata": {"a": "b", "run": "mine"}}"#;
    rig.ask("POST /locks/deploy:web", &key, body).await.is(201);
    let seen = rig
        .ask("GET /locks/deploy:web", &key, "")
        .await
        .is(200)
        .json();
    let holder = &seen["holders"][0];
    assert_eq!(holder["owner"], "acme/web #7");
    let metadata =
        json!({"a": "b", "run": "https://ci.example/acme/web/7", "said_owner": "me@runner"});
    assert_eq!(holder["metadata"], metadata);
    let many: BTreeMap<_, _> = (0..16).map(|number| (format!("k{number}"), "v")).collect();
    let answer = rig
        .ask(
            "POST /locks/deploy:b",
            &key,
            &json!({"metadata": many}).to_string(),
        )
        .await;
    assert_eq!(answer.problem(), (400, "invalid-request"));
    assert!(
        answer.body.contains("together with what the API key adds"),
        "{}",
        answer.body
    );
}

#[tokio::test]
async fn two_subjects_with_one_idempotency_key_do_not_share_a_lease() {
    let rig = Rig::start(KEY).await;
    let (web, api) = (rig.key("acme/web").await, rig.key("acme/api").await);
    let acquire = async |key: &str| {
        let headers = [("authorization", key), SAME, JSON[0]];
        rig.service
            .ask("POST /locks/deploy:web", &headers, "{}")
            .await
    };
    let first = acquire(&web).await.is(201)["token"].clone();
    let other = acquire(&api).await;
    assert_eq!(other.problem(), (423, "locked"));
    assert!(!other.body.contains(first.as_str().unwrap()));
    // The same job, with another exchanged key, is the same caller.
    let again = acquire(&rig.key("acme/web").await).await.is(200);
    assert_eq!(again["token"], first);
}

#[tokio::test]
async fn two_repositories_that_have_chosen_one_subject_are_two_callers() {
    let rig = Rig::start(KEY).await;
    let key = async |id: &str| {
        let mut claims = rig.claims("acme/web");
        claims["sub"] = json!("environment:production");
        claims["repository_id"] = json!(id);
        let answer = rig.send(&rig.token(&claims)).await.is(201);
        format!("Bearer {}", answer["key"].as_str().unwrap())
    };
    let (web, api) = (key("1").await, key("2").await);
    let acquire = async |key: &str| {
        let headers = [("authorization", key), SAME, JSON[0]];
        rig.service
            .ask("POST /locks/deploy:web", &headers, "{}")
            .await
    };
    let first = acquire(&web).await.is(201)["token"].clone();
    let other = acquire(&api).await;
    assert_eq!(other.problem(), (423, "locked"));
    assert!(!other.body.contains(first.as_str().unwrap()));
    assert_eq!(acquire(&key("1").await).await.is(200)["token"], first);
}

#[tokio::test]
async fn claims_that_make_no_owner_leave_the_choice_to_no_caller() {
    let rig = Rig::start(&KEY.replace("'{repository} #{run}'", "'{actor}'")).await;
    let mut claims = rig.claims("acme/web");
    claims["actor"] = json!("");
    let answer = rig.send(&rig.token(&claims)).await.is(201);
    let key = format!("Bearer {}", answer["key"].as_str().unwrap());
    rig.ask("POST /locks/deploy:web", &key, r#"{"owner": "somebody"}"#)
        .await
        .is(201);
    let seen = rig.ask("GET /locks/deploy:web", &key, "").await.is(200);
    assert_eq!(seen["holders"][0]["owner"], "ci (repo:acme/web)");
}

#[tokio::test]
async fn a_token_from_before_a_revocation_is_not_exchanged_again() {
    let rig = Rig::start(KEY).await;
    let mut claims = rig.claims("acme/web");
    claims["iat"] = json!(NOW - 10);
    let token = rig.token(&claims);
    rig.send(&token).await.is(201);
    rig.replace(&format!("{KEY}sessions_after = 2026-11-20T12:00:00Z\n"));
    assert_eq!(rig.refusal(&token).await, "no key matches");
    rig.key("acme/web").await;
}

#[tokio::test]
async fn a_key_that_has_expired_hides_no_later_one_and_ends_what_it_admits() {
    let old = format!("{KEY}expires_at = 2026-11-20T11:00:00Z\n");
    let second = KEY.replace("'ci'", "'second'");
    let rig = Rig::start(&format!("{old}{second}expires_at = 2026-11-20T12:10:00Z\n")).await;
    let answer = rig.send(&rig.token(&rig.claims("acme/web"))).await.is(201);
    assert_eq!(answer["name"], "second");
    assert_eq!(answer["expires_in_ms"], 600_000);
}

#[tokio::test]
async fn the_times_in_a_key_are_not_trusted_beyond_its_rules_and_the_clock() {
    let rig = Rig::start(KEY).await;
    let key = rig.key("acme/web").await;
    let status = async |line: &str| rig.ask(line, &key, "").await.status;
    rig.clock.advance(Duration::from_mins(10));
    assert_eq!(status("GET /locks/x").await, 200);
    rig.replace(&format!("{KEY}session_ms = 300_000\n"));
    assert_eq!(status("GET /locks/x").await, 401);
    rig.replace(KEY);
    assert_eq!(status("GET /locks/x").await, 200);
}

#[tokio::test]
async fn an_exchange_counts_against_the_rate_of_its_key() {
    let rig = Rig::start(&format!("{KEY}requests_per_second = 1\nburst = 2\n")).await;
    let token = rig.token(&rig.claims("acme/web"));
    let mut seen = Vec::new();
    for _ in 0..4 {
        seen.push(rig.send(&token).await.status);
    }
    assert!(seen[0] == 201 && seen.contains(&429), "{seen:?}");
}

#[tokio::test]
async fn a_reservation_is_ended_by_the_subject_that_made_it() {
    let rig = Rig::start(KEY).await;
    let (web, api) = (rig.key("acme/web").await, rig.key("acme/api").await);
    // The service shows the time of its own clock.
    let until = "2026-11-20T12:30:00Z";
    let reserve = json!({"reserve": {"until": until, "reason": "test"}}).to_string();
    rig.ask("POST /locks/deploy:a", &web, &reserve)
        .await
        .is(201);
    let seen = rig.ask("GET /locks/deploy:a", &api, "").await.json();
    assert_eq!(
        seen["holders"][0]["reservation"]["reserved_by"],
        "ci (repo:acme/web)"
    );
    let end = r#"{"reason": "done"}"#;
    let other = rig.ask("POST /locks/deploy:a/break", &api, end).await;
    assert_eq!(other.problem(), (403, "forbidden"));
    rig.ask(
        "POST /locks/deploy:a/break",
        &rig.key("acme/web").await,
        end,
    )
    .await
    .is(200);
    let history = rig
        .ask("GET /locks/deploy:a/history", &web, "")
        .await
        .is(200);
    assert!(
        history.body.contains("ci (repo:acme/web)") && !history.body.contains(") #"),
        "{}",
        history.body
    );
}

#[tokio::test]
async fn each_class_of_refusal_is_told_and_nothing_of_the_token() {
    let lines = Lines::default();
    let _guard = lines.collect();
    let rig = Rig::start(KEY).await;
    let with = |field: &str, value: Value| {
        let mut claims = rig.claims("acme/web");
        claims[field] = value;
        rig.token(&claims)
    };
    let good = rig.token(&rig.claims("acme/web"));
    let other = Signer::new("e").sign(
        &json!({"alg": "ES256", "kid": "e"}),
        &rig.claims("acme/web").to_string(),
    );
    let mut seen = String::new();
    for (token, class) in [
        ("x".to_owned(), "malformed"),
        (with("sub", json!(1)), "malformed"),
        (other, "signature"),
        (with("exp", json!(NOW - 100)), "time"),
        (
            with("aud", json!("https://github.com/acme")),
            "no key matches",
        ),
        (with("iss", json!("https://evil.example")), "no key matches"),
        (
            with("event_name", json!("pull_request_target")),
            "no key matches",
        ),
        (with("repository_owner_id", json!("2")), "no key matches"),
        (with("run", json!([7])), "no key matches"),
        (with("repository", json!("../x")), "no key matches"),
    ] {
        assert_eq!(rig.refusal(&token).await, class);
        let header = [("x-request-id", token.as_str())];
        seen += rig
            .service
            .call("GET /healthz", &header)
            .await
            .header("x-request-id");
        seen += &rig
            .service
            .call(&format!("GET /locks/{token}"), &[])
            .await
            .body;
    }
    let key = rig.key("acme/web").await;
    rig.ask(&format!("GET /locks/{}", &key[7..]), &key, "")
        .await;
    until("all is written", || async {
        fs::read_to_string(&rig.audit_log)
            .unwrap()
            .contains("exchange")
    })
    .await;
    seen += &fs::read_to_string(&rig.audit_log).unwrap();
    assert!(
        seen.contains(r#""event":"exchange","key":"ci (repo:acme/web)""#),
        "{seen}"
    );
    seen += &lines.read();
    assert!(seen.contains("ID token, no key matches: subject"), "{seen}");
    assert!(
        !seen.contains("eyJ") && !seen.contains("lgx_") && !seen.contains(&good[..20]),
        "{seen}"
    );
}

#[tokio::test]
async fn a_refused_token_counts_for_its_address_and_a_valid_one_passes() {
    let rig = Rig::start(KEY).await;
    let mut last = 0;
    for _ in 0..70 {
        last = rig.send("x").await.status;
    }
    assert_eq!(last, 429);
    rig.key("acme/web").await;
}

#[tokio::test]
async fn a_program_may_ask_for_a_key_by_name_and_gets_the_first_otherwise() {
    let second = KEY.replace("'ci'", "'second'");
    let rig = Rig::start(&format!("{KEY}{second}")).await;
    let token = rig.token(&rig.claims("acme/web"));
    for (wanted, name) in [(None, "ci"), (Some("second"), "second"), (Some("ci"), "ci")] {
        let body = json!({"id_token": token, "name": wanted}).to_string();
        let answer = rig
            .service
            .ask("POST /session/token", JSON, body)
            .await
            .is(201);
        assert_eq!(answer["name"], name);
    }
    let body = json!({"id_token": token, "name": "third"}).to_string();
    rig.service
        .ask("POST /session/token", JSON, body)
        .await
        .is(401);
}

#[tokio::test]
async fn after_its_end_a_key_renews_and_releases_for_a_day_and_does_nothing_else() {
    let rig = Rig::start(KEY).await;
    let key = rig.key("acme/web").await;
    let token = rig
        .ask("POST /locks/deploy:web", &key, r#"{"ttl_ms": 60000}"#)
        .await
        .is(201)["token"]
        .clone();
    let token = token.as_str().unwrap().to_owned();
    let renew = async || {
        let headers = [("authorization", key.as_str()), ("lock-token", &token)];
        rig.service
            .call("PUT /locks/deploy:web/renew", &headers)
            .await
            .status
    };
    assert_eq!(renew().await, 200);
    rig.clock.advance(Duration::from_hours(1));
    for line in [
        "POST /locks/deploy:b",
        "POST /locks/deploy:b/hold",
        "GET /locks/deploy:web",
        "GET /locks",
        "GET /session",
    ] {
        let answer = rig.ask(line, &key, "").await;
        assert_eq!(answer.problem(), (401, "unauthorized"), "{line}");
        assert!(
            answer.body.contains("until a day after the exchange"),
            "{}",
            answer.body
        );
    }
    assert_eq!(renew().await, 200);
    rig.clock.advance(Duration::from_secs(23 * 3_600 - 1));
    assert_eq!(renew().await, 200);
    rig.clock.advance(Duration::from_secs(1));
    assert_eq!(renew().await, 401);
    let headers = [("authorization", key.as_str()), ("lock-token", &token)];
    rig.service
        .call("DELETE /locks/deploy:web", &headers)
        .await
        .is(204);
}

#[tokio::test]
async fn a_key_ends_with_its_rules_and_permissions_change_at_once() {
    let rig = Rig::start(KEY).await;
    let key = rig.key("acme/web").await;
    let status = async |line: &str| rig.ask(line, &key, "").await.status;
    let [own, deploy] = ["POST /locks/acme%2Fweb%2Fa", "POST /locks/deploy:a"];
    assert_eq!(
        (status(own).await, status("GET /locks/x").await),
        (201, 200)
    );
    rig.replace(&KEY.replace(", '{repository}/'", ", 'more:'"));
    assert_eq!((status(own).await, status(deploy).await), (403, 201));
    assert_eq!(status("POST /locks/more:a").await, 201);
    rig.replace(&KEY.replace("view = ['*']\n", ""));
    assert_eq!(status("GET /locks/x").await, 403);
    for changed in [
        KEY.replace(
            "event_name = 'push'",
            "event_name = 'push', environment = 'production'",
        ),
        KEY.replace("'1'", "'2'"),
        KEY.replace("name = 'ci'", "name = 'cd'"),
        format!("{KEY}sessions_after = 2026-11-20T12:00:01Z\n"),
        format!("{KEY}expires_at = 2026-11-20T11:00:00Z\n"),
        Key::new().entry("ci", "acquire = ['*']"),
    ] {
        rig.replace(&changed);
        assert_eq!(status(deploy).await, 401, "{changed}");
    }
    rig.replace(&format!("{KEY}sessions_after = 2026-11-20T12:00:00Z\n"));
    assert_eq!(status("GET /locks/x").await, 200);
    let seal: String = "s".repeat(32);
    fs::write(rig.directory.path().join("secret"), seal).unwrap();
    rig.gate.replace_seal(SessionSeal::random());
    assert_eq!(status("GET /locks/x").await, 401);
}

#[tokio::test]
async fn a_cookie_is_no_bearer_and_a_bearer_no_cookie() {
    let plain = Key::new();
    let rig = Rig::start(&(KEY.to_owned() + &plain.entry("ops", "view = ['*']"))).await;
    let body = json!({"key": plain.key.expose()}).to_string();
    let ours = ("sec-fetch-site", "same-origin");
    let signed_in = rig
        .service
        .ask("POST /session", &[JSON[0], ours], body)
        .await
        .is(200);
    let cookie = signed_in
        .header("set-cookie")
        .split(';')
        .next()
        .unwrap()
        .to_owned();
    let sealed = cookie.split_once('=').unwrap().1;
    let key = rig.key("acme/web").await;
    let bearer = &key[7..];
    for text in [sealed.to_owned(), sealed.replace("lgs_", "lgx_")] {
        let answer = rig.ask("GET /locks/x", &format!("Bearer {text}"), "").await;
        assert_eq!(answer.problem(), (401, "unauthorized"));
    }
    for text in [bearer.to_owned(), bearer.replace("lgx_", "lgs_")] {
        let cookie = format!("latchgate-session={text}");
        let answer = rig
            .service
            .call("GET /locks/x", &[("cookie", &cookie), ours])
            .await;
        assert_eq!(answer.problem(), (401, "unauthorized"));
    }
    let body = json!({"key": bearer}).to_string();
    let answer = rig
        .service
        .ask("POST /session", &[JSON[0], ours], body)
        .await;
    assert!(
        answer.status == 400 || answer.status == 401,
        "{}",
        answer.body
    );
    // A token of an issuer is no key either.
    let token = rig.token(&rig.claims("acme/web"));
    rig.ask("GET /locks/x", &format!("Bearer {token}"), "")
        .await
        .is(401);
}

#[tokio::test]
async fn an_issuer_that_is_away_at_the_start_is_found_later_and_costs_no_one_else() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (signer, plain) = (Signer::new("e"), Key::new());
    let issuer = MockIssuer::start_on(listener, signer.jwks());
    issuer.becomes(Mode::Fails(503));
    let rig = Rig::with(
        &(KEY.to_owned() + &plain.entry("ops", "view = ['*']")),
        signer,
        issuer,
    );
    let token = rig.token(&rig.claims("acme/web"));
    until("the issuer is away", || async {
        !rig.gate.failing_issuers().is_empty()
    })
    .await;
    let answer = rig.send(&token).await;
    assert_eq!(answer.problem(), (503, "issuer-unavailable"));
    assert!(!answer.header("retry-after").is_empty());
    rig.service
        .call("GET /locks/x", &[plain.auth()])
        .await
        .is(200);
    let ready = rig.service.get("/readyz").await.is(200).json();
    let check = ready["checks"]
        .as_array()
        .unwrap()
        .iter()
        .find(|it| it["name"] == "issuers")
        .unwrap()
        .clone();
    assert_eq!(check["status"], "warning");
    rig.issuer.becomes(Mode::Serves);
    until("the issuer is found", || async {
        rig.gate.failing_issuers().is_empty()
    })
    .await;
    rig.send(&token).await.is(201);
    // The last good keys count while the issuer is away, and a page of an error is not kept.
    for mode in [Mode::Fails(500), Mode::ServesPage] {
        rig.issuer.becomes(mode);
        rig.send(&token).await.is(201);
    }
}

#[tokio::test]
async fn keys_that_rotate_are_found_and_unknown_kids_ask_once() {
    let rig = Rig::start(KEY).await;
    rig.key("acme/web").await;
    assert_eq!(rig.issuer.asked(), 1);
    let new = Signer::new("new");
    rig.issuer.publish(new.jwks());
    let claims = rig.claims("acme/web").to_string();
    let with =
        |signer: &Signer, kid: &str| signer.sign(&json!({"alg": "ES256", "kid": kid}), &claims);
    // Several tokens of the new key at once wait for one fetch.
    let tokens = [(); 8].map(|()| with(&new, "new"));
    let answers = join_all(tokens.iter().map(|token| rig.send(token))).await;
    for answer in answers {
        answer.is(201);
    }
    assert_eq!(rig.issuer.asked(), 2);
    // The issuer may have a new key again, and is asked at most once a minute.
    let answer = rig.send(&with(&new, "x")).await;
    assert_eq!(answer.problem(), (503, "issuer-unavailable"));
    for number in 0..1_000 {
        let status = rig.send(&with(&new, &number.to_string())).await.status;
        assert!(status == 503 || status == 429, "{status}");
    }
    assert_eq!(rig.issuer.asked(), 2);
    rig.send(&with(&new, "new")).await.is(201);
}

#[tokio::test]
async fn a_kid_that_the_issuer_does_not_have_when_asked_is_refused() {
    let rig = Rig::start(KEY).await;
    rig.key("acme/web").await;
    let header = json!({"alg": "ES256", "kid": "x"});
    let token = rig
        .signer
        .sign(&header, &rig.claims("acme/web").to_string());
    assert_eq!(rig.refusal(&token).await, "signature");
    assert_eq!(rig.issuer.asked(), 2);
}

#[tokio::test]
async fn a_reload_asks_the_issuer_again() {
    let rig = Rig::start(KEY).await;
    rig.key("acme/web").await;
    assert_eq!(rig.issuer.asked(), 1);
    rig.replace(KEY);
    until("the keys are fetched again", || async {
        rig.issuer.asked() == 2
    })
    .await;
    rig.key("acme/web").await;
}

#[tokio::test]
async fn an_issuer_that_is_away_counts_for_the_address() {
    let signer = Signer::new("e");
    let issuer = MockIssuer::start(signer.jwks()).await;
    issuer.becomes(Mode::Fails(503));
    let rig = Rig::with(KEY, signer, issuer);
    until("the issuer is away", || async {
        !rig.gate.failing_issuers().is_empty()
    })
    .await;
    let token = rig.token(&rig.claims("acme/web"));
    let mut seen = Vec::new();
    for _ in 0..70 {
        seen.push(rig.send(&token).await.status);
    }
    assert!(seen.contains(&503) && seen.last() == Some(&429), "{seen:?}");
}

#[tokio::test]
async fn an_answer_that_is_none_of_an_issuer_brings_no_keys() {
    for mode in [
        Mode::Redirects,
        Mode::ServesPage,
        Mode::IsHuge,
        Mode::IsAnother,
        Mode::NamesUnsafeKeys,
        Mode::Fails(404),
    ] {
        let (lines, signer) = (Lines::default(), Signer::new("e"));
        let _guard = lines.collect();
        let issuer = MockIssuer::start(signer.jwks()).await;
        issuer.becomes(mode);
        let rig = Rig::with(KEY, signer, issuer);
        until("it has failed", || async {
            !rig.gate.failing_issuers().is_empty()
        })
        .await;
        let answer = rig.send(&rig.token(&rig.claims("acme/web"))).await;
        assert_eq!(answer.problem(), (503, "issuer-unavailable"), "{mode:?}");
        assert_eq!(rig.issuer.asked(), 0);
        assert!(
            lines
                .read()
                .contains("the keys of the issuer cannot be fetched"),
            "{mode:?}"
        );
    }
}

#[tokio::test]
async fn an_issuer_that_hangs_holds_nobody_else_up() {
    let (signer, plain) = (Signer::new("e"), Key::new());
    let issuer = MockIssuer::start(signer.jwks()).await;
    issuer.becomes(Mode::Hangs);
    let rig = Rig::with(
        &(KEY.to_owned() + &plain.entry("ops", "view = ['*']")),
        signer,
        issuer,
    );
    let token = rig.token(&rig.claims("acme/web"));
    let began = Instant::now();
    let hanging = rig.send(&token);
    let other = async {
        rig.service
            .call("GET /locks/x", &[plain.auth()])
            .await
            .is(200);
        assert!(began.elapsed() < Duration::from_secs(3));
    };
    let (answer, ()) = tokio::join!(hanging, other);
    assert_eq!(answer.problem(), (503, "issuer-unavailable"));
    assert!(began.elapsed() < Duration::from_secs(15));
}

#[tokio::test]
async fn a_gateway_without_keys_or_issuers_exchanges_nothing() {
    let service = Service::start();
    let answer = service
        .ask("POST /session/token", JSON, r#"{"id_token": "x"}"#)
        .await;
    assert_eq!(answer.problem(), (401, "unauthorized"));
}
