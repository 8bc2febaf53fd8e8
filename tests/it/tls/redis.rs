//! TLS to Redis, and passwords from files.

use std::fs;

use crate::support::{
    Authority, RedisServer,
    gateway::{Gateway, Setup},
    program::latchgate,
};

/// A server that speaks TLS only to who has a certificate.
async fn server(authority: &Authority) -> (RedisServer, String) {
    let files = authority.files("redis", &["localhost", "127.0.0.1"]);
    RedisServer::start_tls(&files, &authority.file(), &[]).await
}

/// What a gateway says of itself.
fn ready(gateway: &Gateway) -> String {
    let listen = gateway.address.to_string();
    let checked = latchgate(&["healthcheck", "--ready", "--listen", &listen]).read();
    checked.out + &checked.err
}

fn acquires(gateway: &Gateway, lock: &str) -> bool {
    let ran = latchgate(&["acquire", lock, "--url", &gateway.url()]).read();
    ran.code == Some(0)
}

#[tokio::test]
async fn a_gateway_speaks_tls_to_redis_and_shows_its_certificate_and_a_password_from_a_file() {
    let authority = Authority::new();
    let (redis, port) = server(&authority).await;
    redis
        .run(&["ACL", "SETUSER", "al", "on", ">s3cret", "~*", "&*", "+@all"])
        .await;
    let ours = authority.files("gateway", &["gateway"]);
    let password = redis.directory().join("password");
    fs::write(&password, "s3cret\n").unwrap();
    let gateway = Gateway::start_with(
        Setup::default()
            .with("LATCHGATE_STORE", &format!("rediss://localhost:{port}"))
            .with("LATCHGATE_REDIS_TLS_CA_FILE", &authority.file())
            .with("LATCHGATE_REDIS_TLS_CERT_FILE", &ours.certificate())
            .with("LATCHGATE_REDIS_TLS_KEY_FILE", &ours.key())
            .with("LATCHGATE_REDIS_USERNAME", "al")
            .with("LATCHGATE_REDIS_PASSWORD_FILE", password.to_str().unwrap()),
    );
    assert!(acquires(&gateway, "a"), "{}", ready(&gateway));
    let clients = redis.text(&["CLIENT", "LIST"]).await;
    assert_eq!(clients.matches("user=al").count(), 3, "{clients}");

    // Both are replaced; the gateway finds out when it connects again.
    redis
        .run(&["ACL", "SETUSER", "al", "resetpass", ">an0ther"])
        .await;
    fs::write(&password, "an0ther\n").unwrap();
    ours.write(&authority.sign(&["gateway"]));
    redis.run(&["CLIENT", "KILL", "USER", "al"]).await;
    let mut lock = 0;
    crate::support::eventually("it connects again", || {
        lock += 1;
        let is_up = acquires(&gateway, &format!("b{lock}"));
        async move { is_up.then_some(()) }
    })
    .await;
    let log = gateway.log() + &gateway.greeting;
    assert!(!log.contains("s3cret") && !log.contains("an0ther"), "{log}");
    assert!(gateway.greeting.contains("rediss://localhost:"), "{log}");
}

#[tokio::test]
async fn a_server_that_is_not_believed_or_does_not_believe_us_is_told_of() {
    let authority = Authority::new();
    let (redis, port) = server(&authority).await;
    let ours = authority.files("gateway", &["gateway"]);
    let other = Authority::new();
    let url = format!("rediss://localhost:{port}");
    let plain = format!("rediss://localhost:{}", redis.port());
    for (url, ca, shows, said) in [
        (&url, other.file(), true, "is not believed"),
        (&url, authority.file(), false, "certificate"),
        (&plain, authority.file(), true, "TLS"),
    ] {
        let mut setup = Setup::default()
            .with("LATCHGATE_STORE", url)
            .with("LATCHGATE_REDIS_TLS_CA_FILE", &ca);
        if shows {
            setup = setup
                .with("LATCHGATE_REDIS_TLS_CERT_FILE", &ours.certificate())
                .with("LATCHGATE_REDIS_TLS_KEY_FILE", &ours.key());
        }
        let gateway = Gateway::start_with(setup);
        crate::support::eventually("it says why", || async {
            let ready = ready(&gateway);
            let log = gateway.log();
            (ready.contains(said) || log.contains(said)).then_some(())
        })
        .await;
        assert!(!acquires(&gateway, "a"));
    }
}
