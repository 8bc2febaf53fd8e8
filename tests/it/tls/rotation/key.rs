//! An API key whose secret is replaced, as docs/keys.md says.

use rustix::process::Signal;

use super::{
    super::certified::Certified,
    load::{HOLDERS, Load},
};
use crate::{
    api::key::Key,
    support::{Authority, eventually, gateway::Setup, program::latchgate},
};

/// A keys file in which one key has some secrets.
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
    // The exit code of a look at a lock.
    let look = |key: &Key| {
        let look = latchgate(&["inspect", "a", "--url", &certified.named_url()]);
        let look = look.env("LATCHGATE_KEY", key.key.expose());
        look.env("LATCHGATE_CA_FILE", &certified.authority.file())
            .read()
            .code
    };
    let comes_to = async |key: &Key, code: i32| {
        eventually("the key is known, or not any more", async || {
            (look(key) == Some(code)).then_some(())
        })
        .await;
    };
    let clients = load.start();
    load.goes_on().await;
    assert_eq!(look(&new), Some(106));

    write(&[&old, &new]);
    certified.gateway.signal(Signal::HUP);
    comes_to(&new, 0).await;
    load.goes_on().await;
    load.show(&new.header);
    eventually("every stream is kept with the new secret", async || {
        (load.tally.of("adoptions") == u64::from(HOLDERS)).then_some(())
    })
    .await;
    load.goes_on().await;

    write(&[&new]);
    certified.gateway.signal(Signal::HUP);
    comes_to(&old, 106).await;
    load.goes_on().await;
    load.end();
    clients.join_all().await;
    println!("{}", load.tally);
}
