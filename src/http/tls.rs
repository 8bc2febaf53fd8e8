//! TLS for callers: the certificate of the gateway and the check of client certificates, reloaded when their
//! files change.

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
use tokio::{sync::Notify, time::Instant};
use tokio_rustls::TlsAcceptor;
use tracing::{error, info, warn};

use crate::{
    clock::Clock,
    config::{ClientAuth, HttpTlsConfig},
    file_stamp::FileWatch,
    lifecycle::Lifecycle,
    tls::{TlsError, Validity, provider},
};

/// The gateway's certificate, and the check of client certificates. Cheap to clone; its `Debug` shows no key.
///
/// A connection keeps the certificate with which it began.
#[derive(Clone)]
pub struct Certificates(Arc<RwLock<LoadedCertificates>>);

/// TLS settings for new connections, read from the certificate files.
struct LoadedCertificates {
    config: Arc<ServerConfig>,
    /// When the gateway's certificate expires, if it says so.
    ends: Option<SystemTime>,
    /// Whether the certificate files have changed since they were read, and cannot be used.
    is_outdated: bool,
}

/// HTTP versions that the gateway offers in the TLS handshake (ALPN), the best first.
pub(in crate::http) const HTTP_2: &[u8] = b"h2";
const HTTP_1: &[u8] = b"http/1.1";

// === impl Certificates ===

impl Certificates {
    /// A TLS acceptor for one connection, with the certificate files as they were last read.
    pub(in crate::http) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.0.read().config))
    }

    /// When the certificate of new connections expires, if it says so.
    pub(in crate::http) fn ends(&self) -> Option<SystemTime> {
        self.0.read().ends
    }

    /// Records that the certificate files have changed and cannot be used. The certificate that was read
    /// before stays in use.
    fn mark_outdated(&self) {
        self.0.write().is_outdated = true;
    }

    /// Whether the certificate files have changed since they were read, and cannot be used.
    pub(in crate::http) fn is_outdated(&self) -> bool {
        self.0.read().is_outdated
    }
}

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Certificates(..)")
    }
}

/// Reads the certificate, its key, and the authorities for client certificates.
fn load(config: &HttpTlsConfig) -> Result<LoadedCertificates, TlsError> {
    let identity = config.identity().read()?;
    let validity = identity.chain.first().and_then(Validity::from_certificate);
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

/// Reads the certificate files again when one of them has changed, or on request.
#[derive(Debug)]
pub struct CertificatesWatch {
    config: HttpTlsConfig,
    watch: FileWatch<3>,
}

// === impl CertificatesWatch ===

impl CertificatesWatch {
    /// Reads the certificate files for the first time.
    pub fn open(config: HttpTlsConfig) -> Result<(Self, Certificates), TlsError> {
        let paths = [&config.cert_file, &config.key_file, &config.client_ca_file];
        let watch = FileWatch::new(paths.map(AsRef::as_ref));
        let certificates = Certificates(Arc::new(RwLock::new(load(&config)?)));
        Ok((Self { config, watch }, certificates))
    }

    /// Keeps the certificates up to date until the gateway stops, and warns before a certificate ends. A
    /// notification of `asked` makes the watch read the files at once.
    pub async fn keep_current(
        self,
        certificates: Certificates,
        clock: Arc<dyn Clock>,
        asked: Arc<Notify>,
        lifecycle: Lifecycle,
    ) {
        let Self { config, watch } = self;
        let file = config.cert_file.clone();
        let mut warning = ExpiryWarning::new(clock);
        let report = |outcome: Option<Result<_, String>>| {
            match outcome {
                None => {}
                Some(Ok(loaded)) => {
                    info!(file, "the certificate was read again");
                    // New connections use this certificate from now on.
                    *certificates.0.write() = loaded;
                    warning.reset();
                }
                Some(Err(error)) => {
                    error!(%error, "the certificate that was read before stays in use");
                    certificates.mark_outdated();
                }
            }
            warning.look(certificates.ends(), &file);
        };
        let read = move || load(&config);
        watch.keep_current(read, asked, lifecycle, report).await;
    }
}

/// Warns that the certificate in use ends soon: once a day, and at once if the certificate is new.
#[derive(Debug)]
pub(super) struct ExpiryWarning {
    clock: Arc<dyn Clock>,
    /// When the last warning about the certificate in use was given.
    warned_at: Option<Instant>,
}

/// Time left of a certificate at the first warning: long enough for an operator who is away to come back.
const FIRST_WARNING_BEFORE_END: Duration = Duration::from_hours(14 * 24);
/// Time between two warnings that a certificate ends soon.
const WARNING_INTERVAL: Duration = Duration::from_hours(24);

// === impl ExpiryWarning ===

impl ExpiryWarning {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            warned_at: None,
        }
    }

    /// Forgets earlier warnings, because another certificate is in use.
    pub(super) fn reset(&mut self) {
        self.warned_at = None;
    }

    /// Warns that the certificate in `file` ends soon, if such a warning is due.
    pub(super) fn look(&mut self, ends: Option<SystemTime>, file: &str) {
        match ends.and_then(|ends| self.due(ends)) {
            None => {}
            Some(Duration::ZERO) => {
                warn!(
                    file,
                    "the certificate has expired: callers that check it cannot connect"
                );
            }
            Some(left) => {
                let days_left = left.as_secs() / WARNING_INTERVAL.as_secs();
                warn!(file, days_left, "the certificate is about to expire");
            }
        }
    }

    /// Time left of a certificate, if a warning that it ends soon is due.
    fn due(&mut self, ends: SystemTime) -> Option<Duration> {
        let left = ends.duration_since(self.clock.wall()).unwrap_or_default();
        let was_said = |at: Instant| at.elapsed() < WARNING_INTERVAL;
        if left >= FIRST_WARNING_BEFORE_END || self.warned_at.is_some_and(was_said) {
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
        // One warning on each of the last 14 days, an hour after the day has begun, and one after the end.
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
