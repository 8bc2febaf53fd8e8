//! By what callers know the gateway, and it them.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use parking_lot::{RwLock, RwLockReadGuard};
use rustls::{
    ServerConfig,
    server::{NoClientAuth, WebPkiClientVerifier, danger::ClientCertVerifier},
};
use tokio_rustls::TlsAcceptor;

use crate::{
    config::{ClientAuth, HttpTlsConfig},
    tls::{TlsError, Validity, provider},
};

/// By what callers know the gateway, and it them. Cheap to clone; its `Debug` shows no key.
///
/// A connection keeps what it was made with.
#[derive(Clone)]
pub struct Certificates(Arc<Current>);

struct Current {
    loaded: RwLock<LoadedCertificates>,
    /// Whether the files have changed since and cannot be used.
    is_outdated: AtomicBool,
}

/// What connections are made with.
pub(super) struct LoadedCertificates {
    config: Arc<ServerConfig>,
    /// When the certificate ends, if it says so.
    ends: Option<SystemTime>,
}

/// What is spoken over TLS, the best first.
pub(in crate::http) const HTTP_2: &[u8] = b"h2";
const HTTP_1: &[u8] = b"http/1.1";

// === impl Certificates ===

impl Certificates {
    pub(super) fn new(loaded: LoadedCertificates) -> Self {
        Self(Arc::new(Current {
            loaded: RwLock::new(loaded),
            is_outdated: AtomicBool::new(false),
        }))
    }

    /// Takes one connection, with what the files said last.
    pub(in crate::http) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.loaded().config))
    }

    /// When the certificate ends that new connections are shown, if it says so.
    pub(in crate::http) fn ends(&self) -> Option<SystemTime> {
        self.loaded().ends
    }

    fn loaded(&self) -> RwLockReadGuard<'_, LoadedCertificates> {
        self.0.loaded.read()
    }

    /// New connections are made with these from now on.
    pub(super) fn replace(&self, new: LoadedCertificates) {
        *self.0.loaded.write() = new;
        self.0.is_outdated.store(false, Ordering::Relaxed);
    }

    /// The files have changed and cannot be used: what was read before goes on.
    pub(super) fn mark_outdated(&self) {
        self.0.is_outdated.store(true, Ordering::Relaxed);
    }

    /// Whether the files have changed since and cannot be used.
    pub(in crate::http) fn is_outdated(&self) -> bool {
        self.0.is_outdated.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Certificates(..)")
    }
}

/// Reads the files.
pub(super) fn read(config: &HttpTlsConfig) -> Result<LoadedCertificates, TlsError> {
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
    })
}
