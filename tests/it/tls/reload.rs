//! Certificates that are replaced while the gateway serves, and a certificate that soon expires.

use std::{
    fs,
    os::unix::fs::symlink,
    path::Path,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use latchgate::clock::{Clock, SystemClock};
use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::fixture::{Certified, tls_connect};
use crate::support::{Authority, Files, eventually, gateway::Setup, until};

/// The certificate of the gateway on a new connection, as bytes.
pub(super) async fn shown(certified: &Certified) -> Vec<u8> {
    let address = certified.gateway.address;
    let stream = tls_connect(&certified.authority, address, &[]).await;
    let chain = stream.get_ref().1.peer_certificates().unwrap();
    chain[0].to_vec()
}

/// Waits until a new connection gets another certificate. Answers it.
pub(super) async fn replaced(certified: &Certified, old: &[u8]) -> Vec<u8> {
    eventually("a new connection gets the new certificate", || async {
        let now = shown(certified).await;
        (now != old).then_some(now)
    })
    .await
}

pub(super) const NAMES: &[&str] = &["localhost", "127.0.0.1"];

#[tokio::test]
async fn a_broken_certificate_leaves_the_old_one_and_is_a_warning() {
    let certified = Certified::start();
    let ready = || certified.curl(&[], "/readyz").body;
    let is = |status: &str| ready().contains(&format!(r#""certificate","status":"{status}""#));
    let wait_until = async |status: &str| until(status, async || is(status)).await;
    assert!(is("passing"), "{}", ready());
    for broken in ["", "another key", "s3cret"] {
        let old = shown(&certified).await;
        let good = certified.authority.sign(NAMES);
        let mut bad = good.clone();
        match broken {
            "" => bad.0.clear(),
            "another key" => bad.1 = certified.authority.sign(NAMES).1,
            _ => bad.1 = "-----BEGIN PRIVATE KEY-----\ns3cret\n".to_owned(),
        }
        certified.files.write(&bad);
        wait_until("warning").await;
        assert!(ready().contains("\"status\":\"ready\""), "{}", ready());
        assert_eq!(shown(&certified).await, old, "{broken}");
        certified.files.write(&good);
        wait_until("passing").await;
        assert_ne!(shown(&certified).await, old);
    }
    // The pipe has no writer, so a program that reads it would block for ever.
    let new = certified.files.certificate.with_extension("new");
    let old = shown(&certified).await;
    mknodat(CWD, &new, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    fs::rename(&new, &certified.files.certificate).unwrap();
    wait_until("warning").await;
    assert_eq!(shown(&certified).await, old);
    certified.files.write(&certified.authority.sign(NAMES));
    wait_until("passing").await;
    let gateway = &certified.gateway;
    let log = gateway.logged("http.tls.cert_file cannot be used");
    assert!(!log.contains("s3cret"), "{log}");
}

/// Installs a new version of a secret as Kubernetes does.
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
    let certified = Certified::start_with_files(authority, files, Setup::default());
    let old = shown(&certified).await;
    put(&certified.authority, directory.path(), "..2");
    fs::remove_dir_all(at("..1")).unwrap();
    replaced(&certified, &old).await;
}

const DAY: Duration = Duration::from_hours(24);

/// The expiry of the certificate, as the metrics show it.
fn scraped(certified: &Certified) -> u64 {
    let page = certified.curl(&[], "/metrics").body;
    let name = "latchgate_certificate_expiry_timestamp_seconds ";
    let line = page.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap_or_else(|| panic!("{page}")).parse().unwrap()
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap().as_secs()
}

async fn warned(certified: &Certified, times: usize) {
    eventually("so many warnings", || async {
        let log = certified.gateway.log();
        let warnings = log.matches("the certificate is about to expire").count();
        assert!(warnings <= times, "{log}");
        (warnings == times).then_some(())
    })
    .await;
}

#[tokio::test]
async fn is_warned_of_at_the_start_and_when_another_one_is_read_and_shows_in_the_metrics() {
    let authority = Authority::new();
    let soon = SystemClock.wall() + 5 * DAY;
    let files = authority.of_this_machine();
    files.write(&authority.sign_until(soon));
    let certified = Certified::start_with_files(authority, files, Setup::default());
    assert_eq!(scraped(&certified), seconds(soon));
    warned(&certified, 1).await;
    let log = certified.gateway.log();
    let told = log.contains("days_left=4") && log.contains("gateway.pem");
    assert!(told, "{log}");

    // A new certificate with a late expiry causes no warning, and one with an early expiry causes one at once.
    for (ends, warnings) in [(SystemClock.wall() + 90 * DAY, 1), (soon + DAY, 2)] {
        certified.files.write(&certified.authority.sign_until(ends));
        let is_so = async || scraped(&certified) == seconds(ends);
        until("it is read again", is_so).await;
        warned(&certified, warnings).await;
    }
}

#[tokio::test]
async fn one_that_has_expired_is_warned_of_and_serves_those_who_do_not_mind() {
    let authority = Authority::new();
    let files = authority.of_this_machine();
    files.write(&authority.sign_until(SystemClock.wall() - DAY));
    let certified = Certified::start_with_files(authority, files, Setup::default());
    certified.gateway.logged("the certificate has expired");
    assert_eq!(certified.curl(&["--insecure"], "/healthz").status, 200);
}
