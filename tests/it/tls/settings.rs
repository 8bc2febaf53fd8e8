//! TLS settings that prevent the start; TLS to Redis, and passwords in files.

use std::fs;

use crate::support::{
    Authority, RedisServer,
    gateway::{Gateway, Setup},
    program::{Ran, Run, typed},
    rows, words,
};

/// The errors of `serve` and of `config check` for some settings, each as `key=value`. Both must be the same.
fn refused(settings: &str) -> Ran {
    let run = |line: &str| {
        let set = |run: Run, setting: &str| {
            let (key, value) = setting.split_once('=').unwrap();
            let name = key.to_uppercase().replace('.', "_");
            run.env(&format!("LATCHGATE_{name}"), value)
        };
        words(settings).fold(typed(line), set).ends(2)
    };
    let served = run("serve --listen 127.0.0.1:0");
    let checked = run("config check");
    let last = |ran: &Ran| ran.err.lines().last().unwrap_or_default().to_owned();
    let core = last(&checked);
    let core = core.trim_start_matches("latchgate: ");
    assert!(last(&served).contains(core), "{served:?} {checked:?}");
    checked
}

const CERT: &str = "LATCHGATE_HTTP_TLS_CERT_FILE";
const KEY: &str = "LATCHGATE_HTTP_TLS_KEY_FILE";

#[test]
fn a_certificate_that_cannot_be_used_names_key_and_file() {
    let authority = Authority::new();
    let files = authority.of_this_machine();
    let other = authority.files("other", &["a"]);
    let cases = r#"
        http.tls.cert_file=/nowhere.pem http.tls.key_file=KEY
            => http.tls.cert_file cannot be used: /nowhere.pem cannot be read
        http.tls.cert_file=CERT http.tls.key_file=/nowhere.key
            => http.tls.key_file cannot be used: /nowhere.key cannot be read
        http.tls.cert_file=KEY http.tls.key_file=KEY
            => http.tls.cert_file cannot be used & has no certificate in it
        http.tls.cert_file=CERT http.tls.key_file=CERT
            => http.tls.key_file cannot be used & has no private key in it
        http.tls.cert_file=CERT http.tls.key_file=OTHER
            => http.tls.cert_file cannot be used & with the key in & (http.tls.key_file)
        http.tls.cert_file=CERT => http.tls.cert_file is & nothing without http.tls.key_file
        http.tls.client_ca_file=AUTHORITY => http.tls.client_ca_file is
        http.tls.cert_file=CERT http.tls.key_file=KEY http.tls.client_ca_file=KEY
            => http.tls.client_ca_file cannot be used
        http.tls.cert_file=CERT http.tls.key_file=KEY http.tls.client_auth=maybe
            => http.tls.client_auth is "maybe" & require or optional
    "#;
    for (settings, said) in rows(cases) {
        let settings = settings.replace("=CERT", &format!("={}", files.certificate()));
        let settings = settings.replace("=KEY", &format!("={}", files.key()));
        let settings = settings.replace("=OTHER", &format!("={}", other.key()));
        let refused = refused(&settings.replace("=AUTHORITY", &format!("={}", authority.file())));
        said.split(" & ").for_each(|said| refused.says(said));
    }
}

#[test]
fn what_is_to_be_secret_or_believed_of_redis_names_key_and_file() {
    let cases = r"
        store=redis://h redis.password_file=/nowhere
            => redis.password_file cannot be used: /nowhere cannot be read
        store=rediss://h redis.tls.ca_file=/nowhere
            => redis.tls.ca_file cannot be used: /nowhere cannot be read
        store=redis://h redis.tls.ca_file=/x => nothing, because the store is redis://
        store=redis://:s3cret@h redis.password_file=/x
            => nothing, because the URL of the store has a password
        redis.username=al => nothing without redis.password_file
        redis.tls.cert_file=/x => nothing without redis.tls.key_file
    ";
    for (settings, said) in rows(cases) {
        let refused = refused(&settings);
        refused.says(said);
        refused.says_not("s3cret");
    }
}

#[test]
fn a_password_in_an_argument_is_refused() {
    for store in ["rediss://:s3cret@h", "redis+sentinel://:s3cret@h,i/m"] {
        let refused = typed(&format!("serve --store {store}")).ends(2);
        refused.says("can see an argument");
        refused.says_not("s3cret");
    }
}

#[test]
fn tls_alone_lets_nobody_reach_a_gateway_without_keys_from_elsewhere() {
    let authority = Authority::new();
    let files = authority.of_this_machine();
    let refused = typed("serve --listen 0.0.0.0:0")
        .env(CERT, &files.certificate())
        .env(KEY, &files.key())
        .env("LATCHGATE_HTTP_TLS_CLIENT_CA_FILE", &authority.file())
        .ends(2);
    refused.says("without API keys");
}

/// A Redis server that requires client certificates.
async fn server(authority: &Authority) -> (RedisServer, String) {
    let files = authority.files("redis", &["localhost", "127.0.0.1"]);
    RedisServer::start_tls(&files, &authority.file(), &[]).await
}

/// The readiness of a gateway as `healthcheck` prints it.
fn ready(gateway: &Gateway) -> String {
    let listen = gateway.address.to_string();
    let checked = typed(&format!("healthcheck --ready --listen {listen}")).read();
    checked.out + &checked.err
}

fn acquires(gateway: &Gateway, lock: &str) -> bool {
    let ran = gateway.typed(&format!("acquire {lock}")).read();
    ran.code == Some(0)
}

#[tokio::test]
async fn a_gateway_speaks_tls_to_redis_and_shows_its_certificate_and_a_password_from_a_file() {
    let authority = Authority::new();
    let (redis, port) = server(&authority).await;
    redis.set_user("al on >s3cret ~* &* +@all").await;
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

    // Password and certificate are replaced; the gateway reads them when it connects again.
    redis.set_user("al resetpass >an0ther").await;
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
        (&url, other.file(), true, "is not trusted"),
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
