//! TLS for callers: the certificate of the gateway, kept as its files have it, and whose certificates callers may show.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use parking_lot::RwLock;
use rustls::{
    ServerConfig,
    server::{NoClientAuth, WebPkiClientVerifier, danger::ClientCertVerifier},
};
use tokio::{
    sync::Notify,
    task::spawn_blocking,
    time::{Instant, MissedTickBehavior, interval},
};
use tokio_rustls::TlsAcceptor;
use tracing::{error, info, warn};

use crate::{
    clock::Clock,
    config::{ClientAuth, HttpTlsConfig},
    file_stamp::FileStamp,
    lifecycle::Lifecycle,
    tls::{TlsError, Validity, provider},
};

/// By what callers know the gateway, and it them. Cheap to clone; its `Debug` shows no key.
///
/// A connection keeps what it was made with.
#[derive(Clone)]
pub struct Certificates(Arc<RwLock<LoadedCertificates>>);

/// What connections are made with.
struct LoadedCertificates {
    config: Arc<ServerConfig>,
    /// When the certificate ends, if it says so.
    ends: Option<SystemTime>,
    /// Whether the files have changed since and cannot be used.
    is_outdated: bool,
}

/// What is spoken over TLS, the best first.
pub(in crate::http) const HTTP_2: &[u8] = b"h2";
const HTTP_1: &[u8] = b"http/1.1";

// === impl Certificates ===

impl Certificates {
    /// Takes one connection, with what the files said last.
    pub(in crate::http) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.0.read().config))
    }

    /// When the certificate ends that new connections are shown, if it says so.
    pub(in crate::http) fn ends(&self) -> Option<SystemTime> {
        self.0.read().ends
    }

    /// The files have changed and cannot be used: what was read before goes on.
    fn mark_outdated(&self) {
        self.0.write().is_outdated = true;
    }

    /// Whether the files have changed since and cannot be used.
    pub(in crate::http) fn is_outdated(&self) -> bool {
        self.0.read().is_outdated
    }
}

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Certificates(..)")
    }
}

/// Reads the files.
fn load(config: &HttpTlsConfig) -> Result<LoadedCertificates, TlsError> {
    let identity = config.identity().read()?;
    let validity = identity.chain.first().and_then(Validity::of);
    let ends = validity.and_then(|it| UNIX_EPOCH.checked_add(Duration::from_secs(it.ends)));
    let callers: Arc<dyn ClientCertVerifier> = match config.client_ca() {
        None => Arc::new(NoClientAuth),
        Some(file) => {
            let authorities = Arc::new(file.authorities()?);
            let verifier = WebPkiClientVerifier::builder_with_provider(authorities, provider());
            let verifier = match config.client_auth {
                ClientAuth::Require => verifier,
                ClientAuth::Optional => verifier.allow_unauthenticated(),
            };
            let built = verifier.build();
            built.map_err(|error| TlsError::Setup(error.to_string()))?
        }
    };
    let mut tls = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(callers)
        .with_single_cert(identity.chain, identity.key)?;
    tls.alpn_protocols = vec![HTTP_2.to_vec(), HTTP_1.to_vec()];
    Ok(LoadedCertificates {
        config: Arc::new(tls),
        ends,
        is_outdated: false,
    })
}

/// Reads the files again when one of them has changed, and when it is told to.
#[derive(Debug)]
pub struct CertificatesWatch {
    config: HttpTlsConfig,
    /// The files that were read last, whether or not they could be used.
    read: [FileStamp; 3],
    /// A change that may still go on.
    changing: Option<[FileStamp; 3]>,
}

/// How often the files are looked at. What has changed is read when it has not changed again by the
/// next look: neither half of a file is read, nor a certificate without its new key.
const PERIOD: Duration = Duration::from_secs(1);

// === impl CertificatesWatch ===

impl CertificatesWatch {
    /// Reads the files for the first time.
    pub fn open(config: HttpTlsConfig) -> Result<(Self, Certificates), TlsError> {
        // Before they are read: a change in between is seen.
        let read = stamps(&config);
        let certificates = Certificates(Arc::new(RwLock::new(load(&config)?)));
        let watch = Self {
            config,
            read,
            changing: None,
        };
        Ok((watch, certificates))
    }

    /// Keeps certificates up to date until the gateway stops, and warns of the end of one. `asked`
    /// wakes it at once.
    pub async fn keep_current(
        mut self,
        certificates: Certificates,
        clock: Arc<dyn Clock>,
        asked: Arc<Notify>,
        lifecycle: Lifecycle,
    ) {
        let mut warning = ExpiryWarning::new(clock);
        let mut looks = interval(PERIOD);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut stopped = std::pin::pin!(lifecycle.stopped());
        loop {
            let is_asked = tokio::select! {
                () = &mut stopped => return,
                () = asked.notified() => true,
                _ = looks.tick() => false,
            };
            let work = spawn_blocking(move || {
                let outcome = self.look(is_asked);
                (self, outcome)
            });
            let Ok((watch, outcome)) = work.await else {
                // Only the end of the runtime, or a bug, gets here: the certificates stay as they
                // are.
                error!("the certificate files are no longer looked at");
                return certificates.mark_outdated();
            };
            self = watch;
            let file = &self.config.cert_file;
            match outcome {
                None => {}
                Some(Ok(loaded)) => {
                    info!(file, "the certificate was read again");
                    // New connections are made with it from now on.
                    *certificates.0.write() = loaded;
                    warning.reset();
                }
                Some(Err(error)) => {
                    error!(%error, "the certificate that was read before goes on");
                    certificates.mark_outdated();
                }
            }
            warning.look(certificates.ends(), file);
        }
    }

    /// What the files say, if one has changed or somebody asked for it.
    fn look(&mut self, is_asked: bool) -> Option<Result<LoadedCertificates, TlsError>> {
        let now = stamps(&self.config);
        let is_settled = self.changing.replace(now) == Some(now);
        if !is_asked && (now == self.read || !is_settled) {
            return None;
        }
        self.read = now;
        Some(load(&self.config))
    }
}

fn stamps(config: &HttpTlsConfig) -> [FileStamp; 3] {
    let paths = [&config.cert_file, &config.key_file, &config.client_ca_file];
    paths.map(|path| FileStamp::of(path.as_ref()))
}

/// Says that a certificate is about to end: when it is new, and again each day.
#[derive(Debug)]
pub(super) struct ExpiryWarning {
    clock: Arc<dyn Clock>,
    /// When it was said last of the certificate in use.
    warned_at: Option<Instant>,
}

/// What is left when it is said for the first time: long enough for somebody who is away to come back.
const SOON: Duration = Duration::from_hours(14 * 24);
/// How often it is said.
const AGAIN: Duration = Duration::from_hours(24);

// === impl ExpiryWarning ===

impl ExpiryWarning {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            warned_at: None,
        }
    }

    /// Another certificate is in use, of which nothing has been said.
    pub(super) fn reset(&mut self) {
        self.warned_at = None;
    }

    /// Says it of the certificate in `file`, if it is to be said now.
    pub(super) fn look(&mut self, ends: Option<SystemTime>, file: &str) {
        match ends.and_then(|ends| self.due(ends)) {
            None => {}
            Some(Duration::ZERO) => {
                warn!(
                    file,
                    "the certificate has expired: no careful caller connects any more"
                );
            }
            Some(left) => {
                let days_left = left.as_secs() / AGAIN.as_secs();
                warn!(file, days_left, "the certificate is about to expire");
            }
        }
    }

    /// What is left of a certificate, if it is to be said now.
    fn due(&mut self, ends: SystemTime) -> Option<Duration> {
        let left = ends.duration_since(self.clock.wall()).unwrap_or_default();
        let was_said = |at: Instant| at.elapsed() < AGAIN;
        if left >= SOON || self.warned_at.is_some_and(was_said) {
            return None;
        }
        self.warned_at = Some(Instant::now());
        Some(left)
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use crate::clock::ManualClock;

    use super::*;

    const DAY: Duration = Duration::from_hours(24);

    #[tokio::test(start_paused = true)]
    async fn is_said_for_the_first_time_two_weeks_before_and_then_each_day() {
        let clock = Arc::new(ManualClock::at(UNIX_EPOCH));
        let mut warning = ExpiryWarning::new(Arc::clone(&clock) as Arc<dyn Clock>);
        let ends = UNIX_EPOCH + 15 * DAY;
        let mut warned_at = Vec::new();
        for _hour in 0..=16 * 24 {
            warned_at.extend(warning.due(ends).map(|left| left.as_secs() / DAY.as_secs()));
            clock.advance(DAY / 24);
            tokio::time::advance(DAY / 24).await;
        }
        // An hour after the first of these days has begun, and when it is over.
        let expected: Vec<_> = (0..14).rev().chain([0]).collect();
        assert_eq!(warned_at, expected);
    }

    #[tokio::test(start_paused = true)]
    async fn is_said_again_of_another_certificate() {
        let mut warning = ExpiryWarning::new(Arc::new(ManualClock::at(UNIX_EPOCH)));
        let ends = UNIX_EPOCH + 2 * DAY;
        assert_eq!(warning.due(ends), Some(2 * DAY));
        assert_eq!(warning.due(ends), None);
        warning.reset();
        assert_eq!(warning.due(ends), Some(2 * DAY));
    }
}
