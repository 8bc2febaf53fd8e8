//! Several gateways on one Redis server, and sessions across gateways.

use std::collections::HashSet;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::{cli::prelude::*, support::eventually};

fn on(port: u16) -> Setup {
    Setup::default().with(
        "LATCHGATE_STORE",
        &format!("redis://:s3cret@127.0.0.1:{port}/0"),
    )
}

#[tokio::test]
async fn two_gateways_on_one_redis_are_one() {
    let server = RedisServer::start_with(&["--requirepass", "s3cret"]).await;
    let (a, b) = (
        Gateway::start_with(on(server.port())),
        Gateway::start_with(on(server.port())),
    );
    let token = a.typed("acquire deploy").read();
    assert_eq!(token.code, Some(0), "{token:?} {}", a.log());
    let held = b.typed("acquire deploy").read();
    assert_eq!(held.code, Some(100), "{held:?} {}", b.log());
    let released = b.typed("release deploy").token(token.out.trim_end()).read();
    assert_eq!(released.code, Some(0), "{released:?} {}", b.log());
    assert!(
        a.greeting.contains("store: Redis at redis://:***@"),
        "{}",
        a.greeting
    );
    assert!(!a.log().contains("s3cret"), "{}", a.log());
}

#[test]
fn a_gateway_starts_without_its_redis_and_says_that_nothing_happened() {
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = nobody.local_addr().unwrap().port();
    drop(nobody);
    let gateway = Gateway::start_with(on(port));
    let ran = gateway.typed("acquire deploy").read();
    assert_eq!(ran.code, Some(104), "{ran:?} {}", gateway.log());
    assert!(
        !format!("{ran:?} {}", gateway.log()).contains("s3cret"),
        "{}",
        gateway.log()
    );
}

#[tokio::test]
async fn a_restart_of_redis_is_logged_once_and_a_start_of_the_gateway_is_not() {
    let mut server = RedisServer::start_with(&["--requirepass", "s3cret"]).await;
    let setup = on(server.port()).with("LATCHGATE_LOG_LEVEL", "debug");
    let gateway = Gateway::start_with(setup);
    let said = || gateway.log().matches("all waiters ask again").count();
    eventually("the server is known", async || {
        gateway
            .log()
            .contains("now knows the run of the server")
            .then_some(())
    })
    .await;
    server.kill();
    server.start_again().await;
    eventually("it is said", async || (said() > 0).then_some(())).await;
    assert_eq!(said(), 1, "{}", gateway.log());
}

#[tokio::test]
async fn while_redis_stands_still_nothing_is_in_doubt_that_was_only_to_be_read() {
    let server = RedisServer::start_with(&["--requirepass", "s3cret"]).await;
    let setup = on(server.port())
        .with("LATCHGATE_REDIS_DEADLINE_MS", "500")
        .with("LATCHGATE_REDIS_COMMAND_TIMEOUT_MS", "250");
    let gateway = Gateway::start_with(setup);
    let mut caller = Connection::new(TcpStream::connect(gateway.address).await.unwrap());
    for path in ["/locks/a", "/locks"] {
        let look = HttpRequest::new("GET", path.to_owned());
        // The first request after the freeze uses a connection that worked before.
        while caller.ask(&look).await.unwrap().0 != 200 {}
        server.freeze();
        let (status, problem) = caller.ask(&look).await.unwrap();
        assert_eq!(
            (status, &problem["code"]),
            (503, &"store-unavailable".into()),
            "{problem}"
        );
        server.thaw();
    }
}

#[tokio::test]
async fn each_thread_sends_over_a_connection_of_its_own() {
    let server = RedisServer::start_with(&["--requirepass", "s3cret"]).await;
    let gateway = Gateway::start_with(on(server.port()).with("LATCHGATE_THREADS", "3"));
    // Each connection is given to the thread with the fewest connections.
    let mut callers = Vec::new();
    for _ in 0..3 {
        let stream = TcpStream::connect(gateway.address).await.unwrap();
        callers.push(Connection::new(stream));
    }
    let mut monitor = TcpStream::connect(("127.0.0.1", server.port()))
        .await
        .unwrap();
    let monitoring = b"AUTH s3cret\r\nMONITOR\r\n";
    monitor.write_all(monitoring).await.unwrap();
    let mut round = 0;
    // Until each thread has its own connections to Redis, it uses those of the others.
    loop {
        round += 1;
        for (number, caller) in callers.iter_mut().enumerate() {
            for _ in 0..3 {
                let path = format!("/locks/by-{number}-in-{round}");
                let answer = caller.ask(&HttpRequest::new("GET", path)).await.unwrap();
                assert_eq!(answer.0, 200, "{answer:?}");
            }
        }
        let mut seen = String::new();
        let last = format!("by-2-in-{round}");
        while seen.matches(&last).count() < 3 {
            let mut bytes = [0; 16_384];
            let read = monitor.read(&mut bytes).await.unwrap();
            assert!(read > 0, "{seen}");
            seen.push_str(&String::from_utf8_lossy(&bytes[..read]));
        }
        let used = |number: usize| -> HashSet<&str> {
            let name = format!("by-{number}-in-{round}");
            let lines = seen.lines().filter(|line| line.contains(&name));
            let from = lines.filter_map(|line| line.split(['[', ']']).nth(1));
            from.filter(|from| !from.ends_with("lua")).collect()
        };
        let each: Vec<_> = (0..3).map(used).collect();
        let all: HashSet<_> = each.iter().flatten().collect();
        if each.iter().all(|own| own.len() == 1) && all.len() == 3 {
            return;
        }
        assert!(round < 1_000, "{seen}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

const SECRET: &str = "0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c4b5a69788796a5b4c3d2e1f0\n";

/// Sends a request with these headers and this body. Answers head and body.
async fn ask(gateway: &Gateway, line: &str, more: &str) -> (String, String) {
    let url = gateway.url();
    let host = url.trim_start_matches("http://");
    let request = format!("{line} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{more}");
    let mut stream = TcpStream::connect(host).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

/// Signs in with a key. Answers the cookie.
async fn sign_in(gateway: &Gateway, key: &str) -> String {
    let body = json!({ "key": key }).to_string();
    let length = body.len();
    let more = format!("Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}");
    let (head, body) = ask(gateway, "POST /session", &more).await;
    let cookie = head
        .lines()
        .find_map(|line| line.strip_prefix("set-cookie: "));
    let cookie = cookie.unwrap_or_else(|| panic!("{head}\n{body}"));
    cookie.split(';').next().unwrap().to_owned()
}

/// The name under which a gateway knows this cookie; none if it does not.
async fn known_as(gateway: &Gateway, cookie: &str) -> Option<String> {
    let (_, body) = ask(
        gateway,
        "GET /session",
        &format!("Cookie: {cookie}\r\n\r\n"),
    )
    .await;
    let told: Value = serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error}: {body}"));
    told["name"].as_str().map(str::to_owned)
}

#[tokio::test]
async fn outlast_a_restart_with_a_secret_and_are_known_where_it_is_known() {
    let made = Made::new("ops", &["--view", "*"]);
    let keys = File::new(&made.toml);
    let directory = tempfile::tempdir().unwrap();
    let secret = directory.path().join("secret");
    fs::write(&secret, SECRET).unwrap();
    let setup = || {
        Setup::default()
            .with("LATCHGATE_AUTH_KEYS_FILE", keys.path())
            .with("LATCHGATE_LOG_LEVEL", "trace")
            .with("LATCHGATE_LOG_REQUESTS", "all")
    };
    let sharing = || {
        let secret = secret.to_str().unwrap();
        Gateway::start_with(setup().with("LATCHGATE_AUTH_SESSION_SECRET_FILE", secret))
    };
    let [mut one, other] = [sharing(), sharing()];
    let mut alone = Gateway::start_with(setup());
    let cookie = sign_in(&one, &made.key).await;
    for (gateway, name) in [(&one, Some("ops")), (&other, Some("ops")), (&alone, None)] {
        assert_eq!(known_as(gateway, &cookie).await.as_deref(), name);
    }
    let of_alone = sign_in(&alone, &made.key).await;
    for (gateway, cookie, after) in [
        (&mut one, &cookie, Some("ops")),
        (&mut alone, &of_alone, None),
    ] {
        assert_eq!(known_as(gateway, cookie).await.as_deref(), Some("ops"));
        gateway.kill();
        gateway.restart();
        assert_eq!(known_as(gateway, cookie).await.as_deref(), after);
    }
    // When the key is removed, its session ends at every gateway.
    keys.write(&Made::new("other", &["--view", "*"]).toml);
    for gateway in [&one, &other] {
        eventually("the session has ended with its key", async || {
            known_as(gateway, &cookie).await.is_none().then_some(())
        })
        .await;
    }
    for gateway in [&one, &other, &alone] {
        let log = gateway.logged("route=\"/session\"");
        for secret in [
            &cookie["latchgate-session=".len()..],
            &made.key,
            SECRET.trim(),
        ] {
            assert!(!log.contains(secret), "{log}");
        }
    }
}

#[test]
fn a_secret_that_could_be_guessed_or_is_not_there_stops_the_start() {
    let keys = File::new(&Made::new("ops", &["--view", "*"]).toml);
    let directory = tempfile::tempdir().unwrap();
    let short = directory.path().join("short");
    fs::write(&short, "hunter2hunter2hunter2hunter2\n\n\n\n\n\n\n").unwrap();
    for (path, part) in [
        (
            short.to_str().unwrap(),
            "has a secret of fewer than 32 bytes",
        ),
        ("/none", "/none cannot be read"),
    ] {
        for command in [
            &["serve", "--listen", "127.0.0.1:0"][..],
            &["config", "check"],
        ] {
            let ran = latchgate(command)
                .env("LATCHGATE_AUTH_KEYS_FILE", keys.path())
                .env("LATCHGATE_AUTH_SESSION_SECRET_FILE", path)
                .ends(2);
            ran.says(part);
            ran.says_not("hunter2");
        }
    }
    let without_keys = typed("config check")
        .env("LATCHGATE_AUTH_SESSION_SECRET_FILE", "/none")
        .ends(2);
    without_keys.says("auth.keys_file");
}
