//! Sessions of the dashboard, at gateways that share a secret and at one that does not.

use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::support::{
    eventually,
    gateway::{Gateway, Setup},
    program::latchgate,
};

use super::key_fixture::{File, Made};

const SECRET: &str = "0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c4b5a69788796a5b4c3d2e1f0\n";

/// The head and the body of the answer to a request that ends with these headers and this body.
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

/// The cookie of somebody who has signed in.
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

/// As whom a gateway knows this cookie.
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
    std::fs::write(&secret, SECRET).unwrap();
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
    // The key goes, and with it the session, at every gateway.
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
    std::fs::write(&short, "hunter2hunter2hunter2hunter2\n\n\n\n\n\n\n").unwrap();
    for (path, part) in [
        (short.to_str().unwrap(), "has fewer than 32 bytes"),
        ("/none", "/none cannot be read"),
    ] {
        for command in [
            &["serve", "--listen", "127.0.0.1:0"][..],
            &["config", "check"],
        ] {
            let ran = latchgate(command)
                .env("LATCHGATE_AUTH_KEYS_FILE", keys.path())
                .env("LATCHGATE_AUTH_SESSION_SECRET_FILE", path)
                .read();
            assert_eq!(ran.code, Some(2), "{ran:?}");
            assert!(
                ran.err.contains(part) && !ran.err.contains("hunter2"),
                "{ran:?}"
            );
        }
    }
    let without_keys = latchgate(&["config", "check"])
        .env("LATCHGATE_AUTH_SESSION_SECRET_FILE", "/none")
        .read();
    assert_eq!(without_keys.code, Some(2), "{without_keys:?}");
    assert!(
        without_keys.err.contains("auth.keys_file"),
        "{without_keys:?}"
    );
}
