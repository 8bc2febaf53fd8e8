//! Keeps the certificates of the gateway as their files have them.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::Notify,
    task::spawn_blocking,
    time::{MissedTickBehavior, interval},
};
use tracing::{error, info};

use crate::{
    clock::Clock, config::HttpTlsConfig, file_stamp::FileStamp, lifecycle::Lifecycle, tls::TlsError,
};

use super::{
    Certificates,
    certificates::{self, LoadedCertificates},
    expiry_warning::ExpiryWarning,
};

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
        let certificates = Certificates::new(certificates::read(&config)?);
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
                    certificates.replace(loaded);
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
        Some(certificates::read(&self.config))
    }
}

fn stamps(config: &HttpTlsConfig) -> [FileStamp; 3] {
    let paths = [&config.cert_file, &config.key_file, &config.client_ca_file];
    paths.map(|path| FileStamp::of(path.as_ref()))
}
