//! Certificates that are replaced while the gateway serves.

use std::{
    fs,
    os::unix::fs::symlink,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use rustix::{
    fs::{CWD, FileType, Mode, mknodat},
    process::Signal,
};

use crate::support::{Authority, Files, eventually, gateway::Setup};

use super::{certified::Certified, h2_client::H2, tls_client};

/// The certificate that a new connection is shown, as its bytes.
pub(super) async fn shown(certified: &Certified) -> Vec<u8> {
    let address = certified.gateway.address;
    let stream = tls_client::connect(&certified.authority, address, &[]).await;
    let chain = stream.get_ref().1.peer_certificates().unwrap();
    chain[0].to_vec()
}

/// Waits until a new connection is shown another certificate.
pub(super) async fn replaced(certified: &Certified, old: &[u8]) -> Vec<u8> {
    eventually("a new connection gets the new certificate", || async {
        let now = shown(certified).await;
        (now != old).then_some(now)
    })
    .await
}

pub(super) const NAMES: &[&str] = &["localhost", "127.0.0.1"];

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_is_replaced_under_load_without_a_failed_request() {
    let certified = Arc::new(Certified::start());
    let (stop, count) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicUsize::new(0)),
    );
    let load = latchgate::lifecycle::Lifecycle::new();
    for worker in 0..4 {
        let (certified, stop) = (Arc::clone(&certified), Arc::clone(&stop));
        let count = Arc::clone(&count);
        load.spawn(async move {
            let mut kept = H2::connect(&certified).await;
            while !stop.load(Ordering::SeqCst) {
                // One on a connection that stays, one on a new connection.
                kept.inspect("a").await;
                if worker % 2 == 0 {
                    H2::connect(&certified).await.inspect("a").await;
                }
                count.fetch_add(1, Ordering::SeqCst);
            }
        });
    }
    let mut now = shown(&certified).await;
    for by_signal in [true, false, true] {
        certified.files.write(&certified.authority.sign(NAMES));
        if by_signal {
            certified.gateway.signal(Signal::HUP);
        }
        now = replaced(&certified, &now).await;
        let before = count.load(Ordering::SeqCst);
        eventually("they go on", || async {
            (count.load(Ordering::SeqCst) > before + 20).then_some(())
        })
        .await;
    }
    stop.store(true, Ordering::SeqCst);
    load.stop(std::time::Duration::from_mins(1)).await.unwrap();
    let log = certified.gateway.log();
    assert!(!log.contains("did not come to TLS"), "{log}");
    assert!(!log.contains("PRIVATE"), "{log}");
}

#[tokio::test]
async fn a_broken_certificate_leaves_the_old_one_and_is_a_warning() {
    let certified = Certified::start();
    let ready = || certified.curl(&[], "/readyz").body;
    let is = |status: &str| {
        ready().contains(&format!(
            "{{\"name\":\"certificate\",\"status\":\"{status}\""
        ))
    };
    let wait_until = |status: &'static str| {
        let is = &is;
        eventually("the check is as it should be", move || async move {
            is(status).then_some(())
        })
    };
    assert!(is("passing"), "{}", ready());
    for broken in ["", "another key", "s3cret"] {
        let old = shown(&certified).await;
        let good = certified.authority.sign(NAMES);
        let another = certified.authority.sign(NAMES).1;
        certified.files.write(&match broken {
            "" => (String::new(), good.1.clone()),
            "another key" => (good.0.clone(), another),
            _ => (
                good.0.clone(),
                "-----BEGIN PRIVATE KEY-----\ns3cret\n".to_owned(),
            ),
        });
        wait_until("warning").await;
        assert!(ready().contains("\"status\":\"ready\""), "{}", ready());
        assert_eq!(shown(&certified).await, old, "{broken}");
        certified.files.write(&good);
        wait_until("passing").await;
        assert_ne!(shown(&certified).await, old);
    }
    // Nobody writes to a pipe, so whoever reads it would wait for ever.
    let (old, new) = (
        shown(&certified).await,
        certified.files.certificate.with_extension("new"),
    );
    mknodat(CWD, &new, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    fs::rename(&new, &certified.files.certificate).unwrap();
    wait_until("warning").await;
    assert_eq!(shown(&certified).await, old);
    certified.files.write(&certified.authority.sign(NAMES));
    wait_until("passing").await;
    let log = certified
        .gateway
        .logged("http.tls.cert_file cannot be used");
    assert!(!log.contains("s3cret"), "{log}");
}

/// Puts a new version of a secret in place as Kubernetes does.
fn put(authority: &Authority, directory: &Path, version: &str) {
    let (certificate, key) = authority.sign(NAMES);
    let new = directory.join(version);
    fs::create_dir(&new).unwrap();
    fs::write(new.join("tls.crt"), certificate).unwrap();
    fs::write(new.join("tls.key"), key).unwrap();
    symlink(version, directory.join("..data_tmp")).unwrap();
    fs::rename(directory.join("..data_tmp"), directory.join("..data")).unwrap();
}

#[tokio::test]
async fn a_link_that_is_exchanged_as_kubernetes_does_is_followed() {
    let (authority, directory) = (Authority::new(), tempfile::tempdir().unwrap());
    let at = |name: &str| directory.path().join(name);
    put(&authority, directory.path(), "..1");
    for name in ["tls.crt", "tls.key"] {
        symlink(format!("..data/{name}"), at(name)).unwrap();
    }
    let files = Files {
        certificate: at("tls.crt"),
        key: at("tls.key"),
    };
    let certified = Certified::of(authority, files, Setup::default());
    let old = shown(&certified).await;
    put(&certified.authority, directory.path(), "..2");
    fs::remove_dir_all(at("..1")).unwrap();
    replaced(&certified, &old).await;
}
