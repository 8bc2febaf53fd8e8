//! People sign in at an issuer: `GET /sign-in`, `GET /sign-in/callback`.

use latchgate::{
    audit::Audit,
    config::{AuditConfig, AuthConfig, OrderLimits},
};
use url::{Url, form_urlencoded};

use super::exchange::NOW;
use crate::{
    api::prelude::*,
    support::{Code, MockIssuer, Mode, Signer},
};

/// A gateway at which people sign in, and the issuer.
pub(super) struct Rig {
    pub(super) service: Service,
    pub(super) gate: Gate,
    pub(super) clock: Arc<ManualClock>,
    pub(super) signer: Arc<Signer>,
    pub(super) issuer: Arc<MockIssuer>,
    directory: TempDir,
    base_path: &'static str,
}

/// A browser: its cookies.
#[derive(Default)]
pub(super) struct Browser(pub(super) BTreeMap<String, String>);

pub(super) const PEOPLE: &str = "[[key]]\nname = 'ops'\nissuer = 'i'\nfor = 'people'\nclaims = { groups = 'ops' }\nacquire = ['*']\n\
                      view = ['*']\nbreak = ['*']\n\
                      [[key]]\nname = 'readers'\nissuer = 'i'\nfor = 'people'\nclaims = { tid = 't' }\nview = ['*']\n";
pub(super) const AUDIENCE: &str = "https://locks.example";
/// A navigation that the page of the issuer has caused.
const FROM_ISSUER: (&str, &str) = ("sec-fetch-site", "cross-site");
pub(super) const OURS: (&str, &str) = ("sec-fetch-site", "same-origin");

// === impl Rig ===

impl Rig {
    pub(super) async fn start(keys: &str) -> Self {
        let signer = Arc::new(Signer::new("e"));
        let issuer = Arc::new(MockIssuer::start(signer.jwks()).await);
        Self::with(keys, "http://localhost", "", signer, issuer)
    }

    fn with(
        keys: &str,
        url: &str,
        base_path: &'static str,
        signer: Arc<Signer>,
        issuer: Arc<MockIssuer>,
    ) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let path = |name: &str| at(name).to_str().unwrap().to_owned();
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(NOW);
        let store_clock = Arc::new(ManualClock::at(now));
        let store = EmbeddedStore::open(&at("data"), store_clock, OrderLimits::default()).unwrap();
        let clock = Arc::new(ManualClock::at(now));
        fs::write(at("client"), "a secret & more\n").unwrap();
        fs::write(at("secret"), "0123456789abcdef".repeat(4)).unwrap();
        let mut config = Config::default();
        base_path.clone_into(&mut config.http.base_path);
        config.auth = AuthConfig {
            session_secret_file: path("secret"),
            ..AuthConfig::default()
        };
        let text = format!(
            "[sign_in]\nissuer = 'i'\nclient_id = 'page'\nclient_secret_file = '{}'\nurl = '{url}{base_path}'\n{keys}",
            path("client")
        );
        fs::write(at("keys.toml"), with_issuer(&issuer, &text)).unwrap();
        let ring = KeysFile::new(at("keys.toml")).read().unwrap();
        let seal = SessionSeal::open_configured(&config.auth).unwrap();
        let gate = Gate::guarded(ring, seal, &config.auth, clock.clone());
        let audit = AuditConfig {
            path: path("audit"),
        };
        let audit = Audit::open(&audit, clock.clone()).unwrap();
        let service = Service::audited(Arc::new(store), config, gate.clone(), audit);
        Self {
            service,
            gate,
            clock,
            signer,
            issuer,
            directory,
            base_path,
        }
    }

    /// Changes the keys file, and lets the gateway read it.
    pub(super) fn change(&self, from: &str, to: &str) {
        let path = self.directory.path().join("keys.toml");
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(from), "{text}");
        fs::write(&path, text.replace(from, to)).unwrap();
        self.gate.replace(KeysFile::new(path).read().unwrap());
    }

    /// The claims of Ann, who has begun this attempt.
    pub(super) fn ann(&self, attempt: &BTreeMap<String, String>) -> Value {
        json!({
            "iss": self.issuer.url(), "aud": "page", "sub": "248289761001", "iat": NOW, "exp": NOW + 300,
            "nonce": attempt["nonce"], "email": "ann@example.com", "email_verified": true, "groups": ["all", "ops"],
            "tid": "t",
        })
    }

    pub(super) fn token(&self, claims: &Value) -> String {
        self.signer
            .sign(&json!({"alg": "ES256", "kid": "e"}), &claims.to_string())
    }

    /// Begins to sign in. Answers what the browser brings to the issuer.
    pub(super) async fn begin(
        &self,
        browser: &mut Browser,
        return_to: &str,
    ) -> BTreeMap<String, String> {
        let query = form_urlencoded::byte_serialize(return_to.as_bytes()).collect::<String>();
        let line = format!("GET {}/sign-in?return={query}", self.base_path);
        let answer = browser.visit(&self.service, &line, OURS).await.is(303);
        let url = Url::parse(answer.header("location")).unwrap();
        assert_eq!(
            url[..url::Position::AfterPath],
            format!("{}/authorize", self.issuer.url())
        );
        url.query_pairs().into_owned().collect()
    }

    /// Lets the issuer send the browser back with a code for a token with these claims.
    async fn finish(
        &self,
        browser: &mut Browser,
        attempt: &BTreeMap<String, String>,
        claims: &Value,
    ) -> ApiResponse {
        let (token, challenge) = (self.token(claims), attempt["code_challenge"].clone());
        self.issuer.give("c", Code { token, challenge });
        self.come_back(browser, &format!("code=c&state={}", attempt["state"]))
            .await
    }

    async fn come_back(&self, browser: &mut Browser, query: &str) -> ApiResponse {
        let line = format!("GET {}/sign-in/callback?{query}", self.base_path);
        browser.visit(&self.service, &line, FROM_ISSUER).await
    }

    /// Signs Ann in, with changed claims.
    pub(super) async fn sign_in(
        &self,
        browser: &mut Browser,
        change: impl FnOnce(&mut Value),
    ) -> ApiResponse {
        let attempt = self.begin(browser, "/dashboard").await;
        let mut claims = self.ann(&attempt);
        change(&mut claims);
        self.finish(browser, &attempt, &claims).await
    }

    /// Sends a request as a page of the gateway does.
    pub(super) async fn ask(&self, browser: &Browser, line: &str, body: &str) -> ApiResponse {
        let cookie = browser.header();
        let headers = [("cookie", cookie.as_str()), OURS, JSON[0]];
        let (method, path) = line.split_once(' ').unwrap();
        let line = format!("{method} {}{path}", self.base_path);
        self.service.ask(&line, &headers, body.to_owned()).await
    }

    pub(super) async fn name(&self, browser: &Browser) -> Value {
        self.ask(browser, "GET /session", "").await.is(200)["name"].clone()
    }
}

// === impl Browser ===

impl Browser {
    /// Goes to a page, and keeps the cookies that it sets. A page of another site does not see those that are `Strict`.
    async fn visit(&mut self, service: &Service, line: &str, site: (&str, &str)) -> ApiResponse {
        let is_lax = |name: &&String| site == OURS || name.contains("sign-in");
        let cookie = pairs(self.0.iter().filter(|(name, _)| is_lax(name)));
        let answer = service.call(line, &[("cookie", &cookie), site]).await;
        for set in answer.headers.get_all("set-cookie") {
            let (pair, attributes) = set.to_str().unwrap().split_once("; ").unwrap();
            let (name, value) = pair.split_once('=').unwrap();
            if attributes.contains("Max-Age=0") {
                self.0.remove(name);
            } else {
                self.0.insert(name.to_owned(), value.to_owned());
            }
        }
        answer
    }

    pub(super) fn header(&self) -> String {
        pairs(self.0.iter())
    }

    fn attempts(&self) -> usize {
        self.0
            .keys()
            .filter(|name| name.contains("latchgate-sign-in-"))
            .count()
    }
}

fn pairs<'a>(cookies: impl Iterator<Item = (&'a String, &'a String)>) -> String {
    let pairs: Vec<_> = cookies
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    pairs.join("; ")
}

fn with_issuer(issuer: &MockIssuer, keys: &str) -> String {
    format!(
        "[[issuer]]\nname = 'i'\nurl = '{}'\naudience = '{AUDIENCE}'\n{keys}",
        issuer.url()
    )
}

/// The sentence of a page that signs nobody in.
pub(super) fn sentence(answer: &ApiResponse) -> (u16, &str) {
    let has_session = answer
        .headers
        .get_all("set-cookie")
        .iter()
        .any(|it| it.to_str().unwrap().contains("lgs_"));
    assert!(!has_session);
    let (_, rest) = answer.body.split_once("<p>").unwrap();
    (answer.status, rest.split_once("</p>").unwrap().0)
}

#[tokio::test]
async fn a_person_signs_in_at_the_issuer_and_is_named_wherever_the_key_would_be() {
    let rig = Rig::start(PEOPLE).await;
    let mut ann = Browser::default();
    let offer = rig.ask(&ann, "GET /session", "").await.is(200);
    assert_eq!(offer["sign_in"], json!({"issuer": "i", "key_form": true}));
    let attempt = rig.begin(&mut ann, "/dashboard/locks?x=1&y=\"").await;
    let asked = [
        "kept",
        "response_type",
        "client_id",
        "redirect_uri",
        "scope",
        "code_challenge_method",
    ];
    let asked = asked.map(|name| attempt[name].as_str());
    let callback = "http://localhost/sign-in/callback";
    assert_eq!(
        asked,
        [
            "1",
            "code",
            "page",
            callback,
            "openid email profile",
            "S256"
        ]
    );
    let answer = rig
        .finish(&mut ann, &attempt, &rig.ann(&attempt))
        .await
        .is(200);
    let refresh = "<meta http-equiv=\"refresh\" content=\"0;url=/dashboard/locks?x=1&#38;y=%22\">";
    assert!(answer.body.contains(refresh), "{}", answer.body);
    assert_eq!(answer.header("cache-control"), "no-store");
    assert_eq!(answer.header("referrer-policy"), "no-referrer");
    let session = answer
        .headers
        .get_all("set-cookie")
        .iter()
        .next()
        .unwrap()
        .to_str()
        .unwrap();
    assert!(session.starts_with("latchgate-session=lgs_"), "{session}");
    assert!(
        session.ends_with("; Path=/; Max-Age=28800; HttpOnly; SameSite=Strict"),
        "{session}"
    );
    assert_eq!(ann.attempts(), 0);
    let form: BTreeMap<_, _> = form_urlencoded::parse(rig.issuer.exchanges()[0].as_bytes())
        .into_owned()
        .collect();
    assert_eq!(
        (&*form["grant_type"], &*form["redirect_uri"]),
        ("authorization_code", callback)
    );

    let session = rig.ask(&ann, "GET /session", "").await.is(200).json();
    assert_eq!(session["name"], "ann@example.com (ops)");
    assert_eq!(session["expires_in_ms"], 8 * 3_600_000);
    assert_eq!(session["permissions"]["break"], json!(["*"]));
    let end = format!(
        "{}/end?client_id=page&post_logout_redirect_uri=http%3A%2F%2Flocalhost%2Fdashboard",
        rig.issuer.url()
    );
    assert_eq!(session["sign_out"], end);
    // The page says for whom it was made.
    let (cookie, caller) = (ann.header(), session["caller"].as_str().unwrap().to_owned());
    let headers = [("cookie", cookie.as_str()), OURS, ("signed-in-as", &caller)];
    rig.service.call("GET /locks", &headers).await.is(200);
    let another = [
        headers[0],
        headers[1],
        ("signed-in-as", "ann@example.com (ops)"),
    ];
    rig.service.call("GET /locks", &another).await.is(401);
}

#[tokio::test]
async fn history_and_audit_log_name_the_person_and_show_no_secret() {
    let rig = Rig::start(PEOPLE).await;
    let mut ann = Browser::default();
    rig.sign_in(&mut ann, |_| {}).await.is(200);
    rig.ask(&ann, "POST /locks/deploy", "{}").await.is(201);
    rig.ask(&ann, "POST /locks/deploy/break", r#"{"reason": "stuck"}"#)
        .await
        .is(200);
    let history = rig.ask(&ann, "GET /locks/deploy/history", "").await.is(200);
    assert!(
        history.body.contains("\"ann@example.com (ops)\""),
        "{}",
        history.body
    );
    rig.ask(&ann, "DELETE /session", "").await.is(204);
    let audit = rig.directory.path().join("audit");
    let lines = eventually("the audit log is written", async || {
        let lines = fs::read_to_string(&audit).unwrap();
        lines.contains("sign-out").then_some(lines)
    })
    .await;
    let signed_in = lines
        .lines()
        .find(|line| line.contains("\"sign-in\""))
        .unwrap();
    let signed_in: Value = serde_json::from_str(signed_in).unwrap();
    assert_eq!(
        (
            &signed_in["key"],
            &signed_in["subject"],
            &signed_in["issuer"]
        ),
        (
            &json!("ann@example.com (ops)"),
            &json!("248289761001"),
            &json!(rig.issuer.url())
        )
    );
    for secret in ["lgs_", "eyJ", "a secret"] {
        assert!(!lines.contains(secret));
    }
}

#[tokio::test]
async fn only_the_browser_that_has_begun_an_attempt_can_finish_it_and_once() {
    let rig = Rig::start(PEOPLE).await;
    let (mut ann, mut eve) = (Browser::default(), Browser::default());
    let unknown = "This browser has not begun to sign in, or more than ten minutes ago. Open http://localhost/dashboard, and \
                   sign in there.";
    let of_eve = rig.begin(&mut eve, "/dashboard").await;
    let of_ann = rig.begin(&mut ann, "/dashboard").await;
    let code = |token: &str, attempt: &BTreeMap<String, String>| Code {
        token: token.to_owned(),
        challenge: attempt["code_challenge"].clone(),
    };
    let token = rig.token(&rig.ann(&of_eve));
    rig.issuer.give("e", code(&token, &of_eve));
    // Eve's link, in a browser without her cookie, and in one with an attempt of its own.
    for browser in [&mut Browser::default(), &mut ann] {
        let link = format!("code=e&state={}", of_eve["state"]);
        assert_eq!(
            sentence(&rig.come_back(browser, &link).await),
            (403, unknown)
        );
    }
    // Eve's attempt under the name of Ann's, and Ann's under another name.
    let name =
        |attempt: &BTreeMap<String, String>| format!("latchgate-sign-in-{}", attempt["state"]);
    let swapped = eve.0[&name(&of_eve)].clone();
    for state in [&of_ann["state"], "", "x"] {
        let mut browser = Browser(BTreeMap::from([(
            format!("latchgate-sign-in-{state}"),
            swapped.clone(),
        )]));
        let answer = rig
            .come_back(&mut browser, &format!("code=e&state={state}"))
            .await;
        assert_eq!(sentence(&answer), (403, unknown), "{state}");
    }
    assert_eq!(rig.issuer.exchanges(), [""; 0]);
    // Eve's code in Ann's attempt is of no use without the verifier, and the attempt is over then.
    let answer = rig
        .come_back(&mut ann, &format!("code=e&state={}", of_ann["state"]))
        .await;
    assert_eq!(sentence(&answer).0, 502);
    assert_eq!(ann.attempts(), 0);
    // A code counts once, also with a copy of the cookie.
    let attempt = rig.begin(&mut ann, "/dashboard").await;
    let mut copy = Browser(ann.0.clone());
    rig.finish(&mut ann, &attempt, &rig.ann(&attempt))
        .await
        .is(200);
    let query = format!("code=c&state={}", attempt["state"]);
    assert_eq!(
        sentence(&rig.come_back(&mut ann, &query).await),
        (403, unknown)
    );
    assert_eq!(sentence(&rig.come_back(&mut copy, &query).await).0, 502);
    // Ten minutes are enough.
    let attempt = rig.begin(&mut eve, "/dashboard").await;
    rig.clock.advance(Duration::from_mins(10));
    let answer = rig.finish(&mut eve, &attempt, &rig.ann(&attempt)).await;
    assert_eq!(sentence(&answer), (403, unknown));
}

#[tokio::test]
async fn a_browser_keeps_five_attempts_at_most_and_another_gateway_of_the_same_secret_finishes_them()
 {
    let rig = Rig::start(PEOPLE).await;
    let other = Rig::with(
        PEOPLE,
        "http://localhost",
        "",
        rig.signer.clone(),
        rig.issuer.clone(),
    );
    let mut ann = Browser::default();
    let mut attempts = Vec::new();
    for _ in 0..7 {
        attempts.push(rig.begin(&mut ann, "/dashboard").await);
    }
    assert_eq!(ann.attempts(), 5);
    let last = attempts.last().unwrap();
    other.finish(&mut ann, last, &rig.ann(last)).await.is(200);
    assert_eq!(ann.attempts(), 4);
    assert_eq!(rig.name(&ann).await, "ann@example.com (ops)");
    rig.ask(&ann, "POST /locks/deploy", "{}").await.is(201);
    // A gateway with another secret knows neither.
    fs::write(other.directory.path().join("secret"), "f".repeat(64)).unwrap();
    let config = AuthConfig {
        session_secret_file: other
            .directory
            .path()
            .join("secret")
            .to_str()
            .unwrap()
            .to_owned(),
        ..AuthConfig::default()
    };
    other
        .gate
        .replace_seal(SessionSeal::open_configured(&config).unwrap());
    assert_eq!(other.name(&ann).await, Value::Null);
    let attempt = rig.begin(&mut ann, "/dashboard").await;
    let answer = other.finish(&mut ann, &attempt, &rig.ann(&attempt)).await;
    assert_eq!(sentence(&answer).0, 403);
}

#[tokio::test]
async fn over_https_the_cookies_belong_to_the_host_below_a_base_path_too() {
    let signer = Arc::new(Signer::new("e"));
    let issuer = Arc::new(MockIssuer::start(signer.jwks()).await);
    let rig = Rig::with(PEOPLE, "https://locks.example", "/gate", signer, issuer);
    let mut ann = Browser::default();
    let line = "GET /gate/sign-in?return=%2Fgate%2Fdashboard%2Flocks";
    let answer = ann.visit(&rig.service, line, OURS).await.is(303);
    let cookie = answer.header("set-cookie").to_owned();
    assert!(cookie.starts_with("__Host-latchgate-sign-in-"), "{cookie}");
    assert!(
        cookie.ends_with("; Path=/; Max-Age=600; HttpOnly; SameSite=Lax; Secure"),
        "{cookie}"
    );
    let url = Url::parse(answer.header("location")).unwrap();
    let attempt: BTreeMap<_, _> = url.query_pairs().into_owned().collect();
    // Whatever host the request names.
    assert_eq!(
        attempt["redirect_uri"],
        "https://locks.example/gate/sign-in/callback"
    );
    let answer = rig
        .finish(&mut ann, &attempt, &rig.ann(&attempt))
        .await
        .is(200);
    assert!(
        answer.body.contains("url=/gate/dashboard/locks\""),
        "{}",
        answer.body
    );
    let cookie = answer
        .headers
        .get_all("set-cookie")
        .iter()
        .next()
        .unwrap()
        .to_str()
        .unwrap();
    assert!(
        cookie.starts_with("__Secure-latchgate-session=lgs_"),
        "{cookie}"
    );
    assert!(
        cookie.ends_with("; Path=/gate; Max-Age=28800; HttpOnly; SameSite=Strict; Secure"),
        "{cookie}"
    );
    assert_eq!(rig.name(&ann).await, "ann@example.com (ops)");
    for evil in [
        "//evil.example/gate/dashboard",
        "https://evil.example",
        "/dashboard",
        "/gate/dashboard/../..",
    ] {
        let attempt = rig.begin(&mut ann, evil).await;
        let answer = rig
            .finish(&mut ann, &attempt, &rig.ann(&attempt))
            .await
            .is(200);
        assert!(answer.body.contains("url=/gate/dashboard\""), "{evil}");
    }
}

#[tokio::test]
async fn a_token_that_is_not_for_this_attempt_client_or_person_signs_nobody_in() {
    let rig = Rig::start(PEOPLE).await;
    let changes: [(&str, Value, &str); 12] = [
        ("nonce", json!("x"), "no key matches"),
        ("nonce", Value::Null, "no key matches"),
        ("aud", json!(AUDIENCE), "no key matches"),
        ("aud", json!(["page", AUDIENCE]), "no key matches"),
        ("aud", json!(["other"]), "no key matches"),
        ("azp", json!("other"), "no key matches"),
        ("iss", json!("https://evil.example"), "no key matches"),
        ("exp", json!(NOW - 100), "time"),
        ("iat", Value::Null, "malformed"),
        ("sub", json!(""), "malformed"),
        ("tid", json!("another"), "no key matches"),
        ("email_verified", json!("yes"), ""),
    ];
    for (claim, value, class) in changes {
        let mut ann = Browser::default();
        let answer = rig
            .sign_in(&mut ann, |claims| {
                // Neither key is for somebody of another tenant in no group.
                if claim == "tid" {
                    claims["groups"] = json!([]);
                }
                claims[claim] = value.clone();
            })
            .await;
        if class.is_empty() {
            assert_eq!(rig.name(&ann).await, "248289761001 (ops)");
            continue;
        }
        let (status, why) = sentence(&answer);
        assert_eq!(status, 403, "{claim} {why}");
        assert!(why.contains(&format!("({class})")), "{claim} {why}");
        assert_eq!(rig.name(&ann).await, Value::Null);
    }
    let mut ann = Browser::default();
    let answer = rig
        .sign_in(&mut ann, |claims| claims["aud"] = json!(["page"]))
        .await;
    assert_eq!(answer.status, 200);
    let several =
        |claims: &mut Value| (claims["aud"], claims["azp"]) = (json!(["page", "b"]), json!("page"));
    rig.sign_in(&mut ann, several).await.is(200);
    // Signed by another key.
    let attempt = rig.begin(&mut ann, "/dashboard").await;
    let forged = Signer::new("e").sign(
        &json!({"alg": "ES256", "kid": "e"}),
        &rig.ann(&attempt).to_string(),
    );
    rig.issuer.give(
        "f",
        Code {
            token: forged,
            challenge: attempt["code_challenge"].clone(),
        },
    );
    let answer = rig
        .come_back(&mut ann, &format!("code=f&state={}", attempt["state"]))
        .await;
    assert!(
        sentence(&answer).1.contains("(signature)"),
        "{}",
        answer.body
    );
}

#[tokio::test]
async fn a_link_on_another_site_begins_no_attempt() {
    let rig = Rig::start(PEOPLE).await;
    let mut browser = Browser::default();
    let site = ("sec-fetch-site", "cross-site");
    let answer = browser.visit(&rig.service, "GET /sign-in", site).await;
    let why = "Another site has led you here. Open the dashboard, and sign in there.";
    assert_eq!(sentence(&answer), (403, why));
    assert_eq!(browser.attempts(), 0);
}

#[tokio::test]
async fn a_person_is_told_what_went_wrong() {
    let rig = Rig::start(PEOPLE).await;
    let mut ann = Browser::default();
    let too_many = |claims: &mut Value| {
        claims["groups"] = Value::Null;
        claims["_claim_names"] = json!({"groups": "src1"});
    };
    let (status, why) = {
        let answer = rig.sign_in(&mut ann, too_many).await;
        (answer.status, sentence(&answer).1.to_owned())
    };
    assert!(
        status == 403 && why.starts_with("You are in too many groups"),
        "{why}"
    );
    let attempt = rig.begin(&mut ann, "/dashboard").await;
    let query = format!("error=access_denied%3Cb%3E&state={}", attempt["state"]);
    let answer = rig.come_back(&mut ann, &query).await;
    let denied = "The issuer did not sign you in. It says: access_denied&#60;b&#62;";
    assert_eq!(sentence(&answer), (403, denied));
    assert_eq!(ann.attempts(), 0);
    let attempt = rig.begin(&mut ann, "/dashboard").await;
    let query = format!(
        "code=c&iss=https%3A%2F%2Fevil.example&state={}",
        attempt["state"]
    );
    assert_eq!(sentence(&rig.come_back(&mut ann, &query).await).0, 403);
    let without = Service::with_keys("key = []\n[[key]]\nname = 'a'\nsecrets = ['aaaaaaaaaa:sha256:0000000000000000000000000000000000000000000000000000000000000000']\n".trim_start_matches("key = []\n"));
    for line in ["GET /sign-in", "GET /sign-in/callback?code=c&state=x"] {
        let answer = without.call(line, &[]).await;
        assert_eq!(
            sentence(&answer),
            (404, "This gateway has no issuer for people.")
        );
    }
    assert_eq!(
        without.get("/session").await.is(200)["sign_in"],
        Value::Null
    );
}

#[tokio::test]
async fn an_issuer_that_is_away_is_told_as_such_and_api_keys_go_on() {
    let signer = Arc::new(Signer::new("e"));
    let issuer = Arc::new(MockIssuer::start(signer.jwks()).await);
    issuer.becomes(Mode::Fails(500));
    let key = Key::new();
    let keys = format!("{PEOPLE}{}", key.entry("plain", "view = ['*']"));
    let rig = Rig::with(&keys, "http://localhost", "", signer, issuer);
    let answer = rig.service.get("/sign-in").await;
    assert_eq!(sentence(&answer).0, 502);
    rig.service.call("GET /locks", &[key.auth()]).await.is(200);
    rig.issuer.becomes(Mode::Serves);
    eventually("the issuer is asked again", async || {
        let answer = rig.service.get("/sign-in").await;
        (answer.status == 303).then_some(())
    })
    .await;
}

#[tokio::test]
async fn codes_that_fail_count_for_the_address_and_attempts_of_others_do_not() {
    let rig = Rig::start(PEOPLE).await;
    let mut eve = Browser::default();
    for _ in 0..100 {
        rig.come_back(&mut eve, "code=x&state=x").await.is(403);
    }
    for _ in 0..60 {
        let attempt = rig.begin(&mut eve, "/dashboard").await;
        rig.come_back(&mut eve, &format!("code=x&state={}", attempt["state"]))
            .await
            .is(502);
    }
    let answer = rig
        .service
        .call("GET /locks", &[("authorization", "Bearer lgk_x")])
        .await;
    assert_eq!(answer.status, 429);
    // Who has signed in at the issuer is admitted.
    rig.sign_in(&mut eve, |_| {}).await.is(200);
}
