//! A certificate and an API key that are replaced several times.

use rustix::process::Signal;

use super::load::{HOLDERS, Load};
use crate::{
    api::fixture::Key,
    support::{Authority, eventually, gateway::Setup, program::latchgate, until},
    tls::{
        fixture::Certified,
        reload::{NAMES, replaced, shown},
    },
};

/// How often the certificate is replaced, and the turn in which it does not match its key.
const TIMES: usize = 5;
const MISFIT: usize = 2;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_is_replaced_and_nobody_who_holds_or_asks_notices() {
    let load = Load::new(Certified::start(), None);
    let certified = &load.certified;
    let clients = load.start();
    load.goes_on().await;
    let mut now = shown(certified).await;
    for time in 0..TIMES {
        let mut new = certified.authority.sign(NAMES);
        if time == MISFIT {
            new.1 = certified.authority.sign(NAMES).1;
        }
        certified.files.write(&new);
        certified.gateway.signal(Signal::HUP);
        if time == MISFIT {
            eventually("the certificate that does not fit is refused", async || {
                let log = certified.gateway.log();
                log.contains("cannot be used").then_some(())
            })
            .await;
        } else {
            now = replaced(certified, &now).await;
        }
        load.goes_on().await;
        assert_eq!(shown(certified).await, now);
    }
    load.end();
    clients.join_all().await;
    println!("{TIMES} certificates\n{}", load.tally);
    let log = load.certified.gateway.log();
    assert!(!log.contains("did not complete its TLS handshake"), "{log}");
}

/// A keys file with one key that has these secrets.
fn file(secrets: &[&Key]) -> String {
    let secrets: Vec<_> = secrets.iter().map(|key| key.secret()).collect();
    format!("[[key]]\nname = 'ci'\nsecrets = {secrets:?}\nacquire = ['*']\nview = ['*']\n")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_is_replaced_and_nobody_who_holds_or_asks_notices() {
    let (old, new) = (Key::new(), Key::new());
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("keys.toml");
    let write = |secrets: &[&Key]| {
        let whole = directory.path().join("new");
        std::fs::write(&whole, file(secrets)).unwrap();
        std::fs::rename(whole, &path).unwrap();
    };
    write(&[&old]);
    let keys_file = path.display().to_string();
    let setup = |_: &Authority| Setup::default().with("LATCHGATE_AUTH_KEYS_FILE", &keys_file);
    let load = Load::new(Certified::start_with(setup), Some(old.header.clone()));
    let certified = &load.certified;
    // The exit code of an `inspect` with this key.
    let look = |key: &Key| {
        let look = latchgate(&["inspect", "a", "--url", &certified.named_url()]);
        let look = look.env("LATCHGATE_KEY", key.key.expose());
        look.env("LATCHGATE_CA_FILE", &certified.authority.file())
            .read()
            .code
    };
    let comes_to = async |key: &Key, code: i32| {
        let is_so = async || look(key) == Some(code);
        until("the key is known, or not any more", is_so).await;
    };
    let clients = load.start();
    load.goes_on().await;
    assert_eq!(look(&new), Some(106));

    write(&[&old, &new]);
    certified.gateway.signal(Signal::HUP);
    comes_to(&new, 0).await;
    load.goes_on().await;
    load.show(&new.header);
    let is_so = async || load.tally.total("adoptions") == u64::from(HOLDERS);
    until("every stream is kept with the new secret", is_so).await;
    load.goes_on().await;

    write(&[&new]);
    certified.gateway.signal(Signal::HUP);
    comes_to(&old, 106).await;
    load.goes_on().await;
    load.end();
    clients.join_all().await;
    println!("{}", load.tally);
}
