//! A certificate that is replaced again and again.

use rustix::process::Signal;

use super::{
    super::{
        certified::Certified,
        reload::{NAMES, replaced, shown},
    },
    load::Load,
};
use crate::support::eventually;

/// How often it is replaced, and which of the new ones does not fit its key.
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
    assert!(!log.contains("did not come to TLS"), "{log}");
}
