//! Issuers: who signs ID tokens, and where their keys come from.

use std::{
    error::Error,
    iter::successors,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use reqwest::{Client, header::CACHE_CONTROL, redirect};
use serde::Deserialize;
use tokio::{
    sync::watch,
    time::{Instant, timeout},
};
use tracing::{info, warn};
use url::Url;

use crate::{
    bounded_file,
    config::HostPort,
    tls::{ClientFiles, PemFile, TlsError, distrust, no_tls},
};

use super::{
    id_token::{Claims, has_audience},
    key_cache::{KeyCache, max_age},
    key_set::{KeySet, KeySetError},
};

/// An issuer of a keys file, with its keys.
#[derive(Debug)]
pub struct Issuer {
    /// What the keys file says of the issuer.
    pub settings: IssuerSettings,
    cache: Mutex<KeyCache>,
    is_fetching: AtomicBool,
    /// Counts the fetches that have ended.
    fetches: watch::Sender<u64>,
}

/// What a keys file says of an issuer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssuerSettings {
    /// The name, for keys and for the log.
    pub name: Box<str>,
    /// The URL, as tokens have it in `iss`.
    pub url: Box<str>,
    /// The audience that tokens must have.
    pub audience: Box<str>,
    /// Where the keys come from.
    pub source: KeySource,
    /// The claims that tell the tenants of this issuer apart.
    pub tenant_claims: Vec<Box<str>>,
}

/// Where the keys of an issuer come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySource {
    /// From the issuer, by discovery. The file has the authorities that are trusted instead of the system's.
    Discovery(Option<PathBuf>),
    /// From this file, which the operator has pinned.
    Pinned(PathBuf),
}

/// What is known of an issuer's keys.
pub(in crate::auth) enum Keys {
    /// The keys.
    Known(Arc<KeySet>),
    /// A fetch runs or is due, which may bring keys.
    Coming,
    /// The issuer could not be reached, and is asked again after this time.
    Away(Duration),
}

/// Why the keys of an issuer cannot be fetched.
#[derive(Debug, thiserror::Error)]
enum FetchError {
    #[error("cannot read {path}: {error}")]
    Pinned {
        path: String,
        error: bounded_file::FileError,
    },
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("{0}")]
    Http(String),
    #[error("{url} answers with the status {status}")]
    Status { url: String, status: u16 },
    #[error("{0} has more than 256 KiB")]
    TooLong(String),
    #[error("{0} is no OpenID configuration with issuer and jwks_uri")]
    NotDiscovery(String),
    #[error("the configuration is of the issuer {0:?}")]
    OtherIssuer(String),
    #[error("jwks_uri is {0:?}; allowed is https://, or http:// to a loopback address")]
    BadUrl(String),
    #[error("{0}: {1}")]
    Keys(String, KeySetError),
}

/// How long one request for keys may take.
pub(in crate::auth) const FETCH_LIMIT: Duration = Duration::from_secs(5);
const DISCOVERY: &str = "/.well-known/openid-configuration";

// === impl IssuerSettings ===

impl IssuerSettings {
    /// Whether these claims are of a token for this gateway.
    pub fn is_audience(&self, claims: &Claims) -> bool {
        has_audience(claims, &self.audience)
    }

    /// The address of an issuer, or of its keys, if a gateway may ask it: over HTTPS, or on this machine.
    pub(in crate::auth) fn address(text: &str) -> Option<Url> {
        let url = Url::parse(text).ok()?;
        let host = url.host_str()?.parse::<HostPort>().ok()?;
        let is_safe = url.scheme() == "https" || url.scheme() == "http" && host.host.is_loopback();
        let is_bare =
            url.username().is_empty() && url.password().is_none() && url.fragment().is_none();
        (is_safe && is_bare).then_some(url)
    }
}

// === impl Issuer ===

impl Issuer {
    /// An issuer whose keys are not known yet.
    pub(in crate::auth) fn new(settings: IssuerSettings) -> Self {
        Self {
            settings,
            cache: Mutex::new(KeyCache::new(Instant::now())),
            is_fetching: AtomicBool::new(false),
            fetches: watch::Sender::new(0),
        }
    }

    /// Reads the keys from the file of the operator, if there is one.
    pub(in crate::auth) fn read_pinned(&mut self) -> Result<(), String> {
        let KeySource::Pinned(path) = &self.settings.source else {
            return Ok(());
        };
        let keys = read_pinned(path).map_err(|error| {
            format!("keys_file of the issuer {:?}: {error}", self.settings.name)
        })?;
        *self.cache.get_mut() = KeyCache::pinned(keys, Instant::now());
        Ok(())
    }

    /// The keys, as far as they are known now.
    pub(in crate::auth) fn keys(&self) -> Keys {
        let (cache, now) = (self.cache.lock(), Instant::now());
        match cache.keys(now) {
            Some(keys) => Keys::Known(Arc::clone(keys)),
            None if self.is_pinned() => Keys::Away(Duration::from_mins(1)),
            None if self.is_fetching.load(Ordering::Relaxed) || cache.is_due(now) => Keys::Coming,
            None => Keys::Away(cache.due_in(now)),
        }
    }

    /// Whether the keys could not be fetched when they were due.
    pub(in crate::auth) fn is_failing(&self) -> bool {
        self.cache.lock().is_failing()
    }

    /// Asks for a fetch because of a token with an unknown `kid`. Returns whether a fetch runs or is due.
    pub(in crate::auth) fn ask(&self) -> bool {
        let (mut cache, now) = (self.cache.lock(), Instant::now());
        let is_coming = self.is_fetching.load(Ordering::Relaxed) || cache.is_due(now);
        !self.is_pinned() && (cache.ask(now) || is_coming)
    }

    /// The fetches that have ended, for a caller that waits for the next.
    pub(in crate::auth) fn fetches(&self) -> watch::Receiver<u64> {
        self.fetches.subscribe()
    }

    pub(in crate::auth) fn is_pinned(&self) -> bool {
        matches!(self.settings.source, KeySource::Pinned(_))
    }

    /// Begins a fetch if one is due and none runs. The caller must then call [`refresh`].
    pub(in crate::auth) fn begin_fetch(&self) -> bool {
        !self.is_pinned()
            && self.cache.lock().is_due(Instant::now())
            && !self.is_fetching.swap(true, Ordering::Relaxed)
    }
}

/// Fetches the keys of an issuer, and records the outcome.
pub(in crate::auth) async fn refresh(issuer: Arc<Issuer>) {
    let settings = &issuer.settings;
    let fetched = timeout(3 * FETCH_LIMIT, fetch(settings)).await;
    let fetched = fetched.unwrap_or_else(|_| Err(FetchError::Http("no answer in time".to_owned())));
    let name = &*settings.name;
    {
        let (mut cache, now) = (issuer.cache.lock(), Instant::now());
        let was_failing = cache.is_failing();
        match fetched {
            Ok((keys, age)) => {
                cache.fetched(keys, age, now);
                if was_failing {
                    info!(issuer = name, "the keys of the issuer can be fetched again");
                }
            }
            Err(error) => {
                cache.failed(now);
                if !was_failing {
                    let has_keys = cache.keys(now).is_some();
                    warn!(issuer = name, %error, has_keys, "the keys of the issuer cannot be fetched; the gateway asks again");
                }
            }
        }
    }
    issuer.is_fetching.store(false, Ordering::Relaxed);
    issuer.fetches.send_modify(|count| *count += 1);
}

async fn fetch(settings: &IssuerSettings) -> Result<(KeySet, Option<Duration>), FetchError> {
    #[derive(Deserialize)]
    struct Discovery {
        issuer: String,
        jwks_uri: String,
    }
    let KeySource::Discovery(ca_file) = &settings.source else {
        unreachable!("pinned keys are not fetched");
    };
    let discovery = format!("{}{DISCOVERY}", settings.url.trim_end_matches('/'));
    let (document, _) = get(&discovery, ca_file.as_deref()).await?;
    let found: Discovery =
        serde_json::from_slice(&document).map_err(|_| FetchError::NotDiscovery(discovery))?;
    if *found.issuer != *settings.url {
        return Err(FetchError::OtherIssuer(found.issuer));
    }
    let (keys, age) = get(&found.jwks_uri, ca_file.as_deref()).await?;
    let keys = KeySet::parse(&keys).map_err(|error| FetchError::Keys(found.jwks_uri, error))?;
    Ok((keys, age))
}

/// Fetches a document of at most 256 KiB, and how long it may be kept.
async fn get(
    text: &str,
    ca_file: Option<&Path>,
) -> Result<(Vec<u8>, Option<Duration>), FetchError> {
    let url = IssuerSettings::address(text).ok_or_else(|| FetchError::BadUrl(text.to_owned()))?;
    let failed = |error: reqwest::Error| FetchError::Http(cause(&error));
    let is_tls = url.scheme() == "https";
    let ca = ca_file.map(|path| PemFile::new("ca_file of the issuer", path));
    let tls = if is_tls {
        ClientFiles { ca, identity: None }.config()?
    } else {
        no_tls()?
    };
    let mut builder = Client::builder()
        .connect_timeout(FETCH_LIMIT)
        .timeout(FETCH_LIMIT)
        .tls_backend_preconfigured(tls)
        // A redirect could lead to any host, over plain HTTP.
        .redirect(redirect::Policy::none())
        .retry(reqwest::retry::never())
        .user_agent(concat!("latchgate/", env!("CARGO_PKG_VERSION")));
    if !is_tls {
        builder = builder.no_proxy();
    }
    let mut response = builder
        .build()
        .map_err(failed)?
        .get(url)
        .send()
        .await
        .map_err(failed)?;
    let status = response.status().as_u16();
    if status != 200 {
        return Err(FetchError::Status {
            url: text.to_owned(),
            status,
        });
    }
    let header = response.headers().get(CACHE_CONTROL);
    let age = header
        .and_then(|value| value.to_str().ok())
        .and_then(max_age);
    let mut body = Vec::new();
    while let Some(more) = response.chunk().await.map_err(failed)? {
        body.extend_from_slice(&more);
        if body.len() > KeySet::MAX_LEN {
            return Err(FetchError::TooLong(text.to_owned()));
        }
    }
    Ok((body, age))
}

fn read_pinned(path: &Path) -> Result<KeySet, FetchError> {
    let file = || path.display().to_string();
    let bytes =
        bounded_file::read(path, KeySet::MAX_LEN as u64).map_err(|error| FetchError::Pinned {
            path: file(),
            error,
        })?;
    KeySet::parse(&bytes).map_err(|error| FetchError::Keys(file(), error))
}

/// The text of an error and of its causes.
fn cause(error: &reqwest::Error) -> String {
    if let Some(why) = distrust(error, "ca_file of the issuer") {
        return format!("its certificate is not trusted: {why}");
    }
    let causes = successors(Some(error as &dyn Error), |&error| error.source());
    causes
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(": ")
}
