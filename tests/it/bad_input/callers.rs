//! Hosts that do not belong to the gateway, invalid API keys, and permissions at the limits of their prefixes.

use latchgate::auth::ApiKey;

use super::bench::{Bench, Case, Expected, HELD, INVALID};
use crate::support::{
    gateway::Setup,
    operations::{Operation, operations},
    words,
};

const WRONG_HOST: Expected = Expected::Refused(421, "wrong-host");
const HOSTS: &str = r"
    evil.example evil.example:7420 localhost.evil.example a.localhost 127.0.0.1.evil.example
    127.0.0.1.nip.io 0.0.0.0 [::] 192.0.2.1 127.1 2130706433 0x7f000001 017700000001 [2001:db8::1]
    xn--lcalhost-55a metadata
";

fn hosts_cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for host in words(HOSTS) {
        for line in [
            "POST /locks/a",
            "GET /locks",
            "DELETE /locks/witness",
            "GET /dashboard",
        ] {
            cases.push(Case::with(line, ("Host", host), WRONG_HOST));
        }
    }
    cases
}

#[tokio::test]
async fn no_name_of_elsewhere_is_served() {
    Bench::start().await.run(hosts_cases()).await;
}

const UNAUTHORIZED: Expected = Expected::Refused(401, "unauthorized");
const FORBIDDEN: Expected = Expected::Refused(403, "forbidden");

/// The keys of the gateway: one with all permissions, one with all permissions under a prefix, and one that may only
/// view.
struct Keys {
    all: ApiKey,
    team: ApiKey,
    viewer: ApiKey,
}

// === impl Keys ===

impl Keys {
    fn new() -> Self {
        let [all, team, viewer] = std::array::from_fn(|_| ApiKey::random());
        Self { all, team, viewer }
    }

    fn file(&self) -> String {
        let entry = |name: &str, key: &ApiKey, lines: &str| {
            let (id, hash) = (key.id(), key.hash());
            format!("[[key]]\nname = '{name}'\nsecrets = ['{id}:sha256:{hash}']\n{lines}\n")
        };
        let everything = "acquire = ['*']\nview = ['*']\nbreak = ['*']\nmetrics = true";
        let team = "acquire = ['team:']\nview = ['team:']\nbreak = ['team:']\nmax_ttl_ms = 60000";
        let viewer = "view = ['*']";
        [
            entry("all", &self.all, everything),
            entry("team", &self.team, team),
            entry("viewer", &self.viewer, viewer),
        ]
        .concat()
    }
}

/// Request lines and bodies that need a permission on a lock.
fn lines(lock: &str) -> Vec<(String, &'static [u8])> {
    let of_locks = operations().into_iter();
    let of_locks = of_locks.filter(|it| it.names_lock() && it.answers("forbidden"));
    let with_body = |it: &Operation| match it.body_is_required() {
        Some(true) => &b"{\"reason\": \"x\"}"[..],
        _ => b"",
    };
    of_locks.map(|it| (it.line(lock), with_body(&it))).collect()
}

fn no_keys(key: &str) -> Vec<String> {
    let (id, rest) = key.rsplit_once('_').unwrap();
    let mut wrong = vec![
        String::new(),
        "Bearer".to_owned(),
        "Bearer ".to_owned(),
        "Bearer x".to_owned(),
        key.to_owned(),
        format!("Basic {key}"),
        format!("Bearer{key}"),
        format!("Bearer {}", &key[..key.len() - 1]),
        format!("Bearer {}", &key[1..]),
        format!("Bearer {key}x"),
        format!("Bearer {key} {key}"),
        format!("Bearer {id}"),
        format!("Bearer {id}_"),
        format!("Bearer {rest}"),
        format!("Bearer {}", key.to_uppercase()),
        format!("Bearer {}", "x".repeat(8_000)),
        format!("Bearer \"{key}\""),
        format!("Bearer {}", ApiKey::random().expose()),
    ];
    // Keys with two neighbouring characters exchanged.
    wrong.extend((0..key.len() - 1).filter_map(|at| {
        let mut other = key.as_bytes().to_vec();
        other.swap(at, at + 1);
        let other = String::from_utf8(other).unwrap();
        (other != key).then(|| format!("Bearer {other}"))
    }));
    wrong
}

fn keys_cases(keys: &Keys) -> Vec<Case> {
    let mut cases = Vec::new();
    let all = keys.all.expose();
    for wrong in no_keys(all) {
        for (line, body) in lines(HELD) {
            let headers = [("Authorization", wrong.as_str())];
            cases.push(Case::new(&line, &headers, body, UNAUTHORIZED));
        }
    }
    let others = operations().into_iter();
    for other in others.filter(|it| !it.names_lock() && it.answers("forbidden")) {
        let line = other.line("a");
        cases.push(Case::bare(&line, UNAUTHORIZED));
        if other.method != "GET" {
            continue;
        }
        let cookie = [(
            "Cookie",
            "latchgate-session=lgs_AAAA; __Host-latchgate-session=lgs_AAAA",
        )];
        cases.push(Case::new(&line, &cookie, b"", UNAUTHORIZED));
    }
    let bearer = |key: &ApiKey| format!("Bearer {}", key.expose());
    let (team, viewer, all) = (bearer(&keys.team), bearer(&keys.viewer), bearer(&keys.all));
    let by_team = [("Authorization", team.as_str())];
    let by_viewer = [("Authorization", viewer.as_str())];
    // Names that are near the prefix, but not under it.
    for lock in words("team team2 team2:a Team:a tea team.a xteam:a team-: t witness") {
        for (line, body) in lines(lock) {
            cases.push(Case::new(&line, &by_team, body, FORBIDDEN));
        }
    }
    for lock in ["team:", "team:a", "team::", "team:a:b"] {
        let acquire = format!("POST /locks/{lock}");
        cases.push(Case::with(acquire, by_team[0], Expected::Granted));
    }
    let limited = Expected::Refused(403, "limit-exceeded");
    for body in ["{\"ttl_ms\": 60001}", "{\"ttl_ms\": 86400000}"] {
        let line = "POST /locks/team:a";
        cases.push(Case::new(line, &by_team, body.as_bytes(), limited));
    }
    for lock in ["a", HELD, "team:a"] {
        // All but the two that a viewer may ask.
        let allowed = ["", "/history"].map(|it| format!("GET /locks/{lock}{it}"));
        for (line, body) in lines(lock)
            .iter()
            .filter(|(line, _)| !allowed.contains(line))
        {
            cases.push(Case::new(line, &by_viewer, body, FORBIDDEN));
        }
    }
    for by in [by_team[0], by_viewer[0]] {
        cases.push(Case::with("GET /metrics", by, FORBIDDEN));
    }
    let twice = [
        ("Authorization", all.as_str()),
        ("authorization", all.as_str()),
    ];
    cases.push(Case::new("POST /locks/a", &twice, b"", INVALID));
    cases
}

#[tokio::test]
async fn no_key_opens_what_it_was_not_made_for() {
    let directory = tempfile::tempdir().unwrap();
    let keys = Keys::new();
    let file = directory.path().join("keys.toml");
    std::fs::write(&file, keys.file()).unwrap();
    let setup = Setup::default().with("LATCHGATE_AUTH_KEYS_FILE", file.to_str().unwrap());
    let all = keys.all.expose();
    let mut bench = Bench::start_with(setup, &format!("Authorization: Bearer {all}\r\n")).await;
    for key in [&keys.all, &keys.team, &keys.viewer] {
        bench.keep_secret(key.expose());
    }
    let cases = keys_cases(&keys);
    bench.run(cases).await;
}
