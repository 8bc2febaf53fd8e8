//! A certificate that is about to expire.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use latchgate::clock::{Clock, SystemClock};

use crate::support::{Authority, eventually, gateway::Setup};

use super::certified::Certified;

const DAY: Duration = Duration::from_hours(24);

/// When the certificate ends, as the metrics have it.
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
    let certified = Certified::of(authority, files, Setup::default());
    assert_eq!(scraped(&certified), seconds(soon));
    warned(&certified, 1).await;
    let log = certified.gateway.log();
    assert!(
        log.contains("days_left=4") && log.contains("gateway.pem"),
        "{log}"
    );

    // A new one that has long to go says nothing, and one that has not says so at once.
    for (ends, warnings) in [(SystemClock.wall() + 90 * DAY, 1), (soon + DAY, 2)] {
        certified.files.write(&certified.authority.sign_until(ends));
        eventually("it is read again", || async {
            (scraped(&certified) == seconds(ends)).then_some(())
        })
        .await;
        warned(&certified, warnings).await;
    }
}

#[tokio::test]
async fn one_that_has_expired_is_warned_of_and_serves_those_who_do_not_mind() {
    let authority = Authority::new();
    let files = authority.of_this_machine();
    files.write(&authority.sign_until(SystemClock.wall() - DAY));
    let certified = Certified::of(authority, files, Setup::default());
    eventually("the warning", || async {
        certified
            .gateway
            .log()
            .contains("the certificate has expired")
            .then_some(())
    })
    .await;
    assert_eq!(certified.curl(&["--insecure"], "/healthz").status, 200);
}
