//! Issuers: who signs ID tokens, and where their keys come from.

use std::{
    error::Error,
    iter::successors,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use reqwest::{Client, header::CACHE_CONTROL, redirect};
use serde::Deserialize;
use tokio::{
    sync::Semaphore,
    time::{Instant, timeout},
};
use tracing::{info, warn};
use url::Url;

use crate::{
    bounded_file,
    config::HostPort,
    tls::{ClientFiles, PemFile, distrust, no_tls},
};

use super::{
    id_token::{Claims, has_audience, shown},
    key_cache::{KeyCache, max_age},
    key_set::KeySet,
};

/// An issuer of a keys file, with its keys.
#[derive(Debug)]
pub struct Issuer {
    /// What the keys file says of the issuer.
    pub settings: IssuerSettings,
    cache: Mutex<KeyCache>,
    /// Held by the only fetch.
    fetch: tokio::sync::Mutex<()>,
    /// How many requests may wait for the keys of this issuer.
    pub(in crate::auth) waits: Semaphore,
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

/// How long one request for keys may take.
pub(in crate::auth) const FETCH_LIMIT: Duration = Duration::from_secs(5);
/// How many requests may wait for the keys of one issuer.
const MAX_WAITS: usize = 64;
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
            fetch: tokio::sync::Mutex::new(()),
            waits: Semaphore::new(MAX_WAITS),
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

    /// The keys, if any count now.
    pub(in crate::auth) fn keys(&self) -> Option<Arc<KeySet>> {
        self.cache.lock().keys(Instant::now()).cloned()
    }

    /// Whether the keys could not be fetched when they were due.
    pub(in crate::auth) fn is_failing(&self) -> bool {
        self.cache.lock().is_failing()
    }

    /// Whether a fetch is due.
    pub(in crate::auth) fn is_due(&self) -> bool {
        !self.is_pinned() && self.cache.lock().is_due(Instant::now())
    }

    /// Makes a fetch due because of a token with an unknown `kid`, if it may. Returns whether a fetch is due.
    pub(in crate::auth) fn ask(&self) -> bool {
        let (mut cache, now) = (self.cache.lock(), Instant::now());
        cache.is_due(now) || cache.ask(now)
    }

    /// The time until a token can cause another fetch.
    pub(in crate::auth) fn asks_in(&self) -> Duration {
        self.cache.lock().asks_in(Instant::now())
    }

    /// Makes a fetch due because the operator has asked for it.
    pub(in crate::auth) fn make_due(&self) {
        self.cache.lock().make_due(Instant::now());
    }

    pub(in crate::auth) fn is_pinned(&self) -> bool {
        matches!(self.settings.source, KeySource::Pinned(_))
    }

    /// Fetches the keys if they are due. While another caller fetches them, waits for its outcome. If the future is
    /// dropped, the fetch stays due.
    pub(in crate::auth) async fn refresh(&self) {
        let _only = self.fetch.lock().await;
        if !self.is_due() {
            return;
        }
        let fetched = timeout(2 * FETCH_LIMIT, fetch(&self.settings)).await;
        let fetched = fetched.unwrap_or_else(|_| Err("no answer in time".to_owned()));
        let name = &*self.settings.name;
        let (mut cache, now) = (self.cache.lock(), Instant::now());
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
}

/// Fetches the keys of an issuer, and how long they may be kept. A failure is a text for the log.
async fn fetch(settings: &IssuerSettings) -> Result<(KeySet, Option<Duration>), String> {
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
    let found: Discovery = serde_json::from_slice(&document)
        .map_err(|_| format!("{discovery} is no OpenID configuration with issuer and jwks_uri"))?;
    let Discovery { issuer, jwks_uri } = found;
    if *issuer != *settings.url {
        return Err(format!(
            "the configuration is of the issuer {}",
            shown(&issuer)
        ));
    }
    // Only an issuer on this machine may have its keys without TLS.
    if !jwks_uri.starts_with("https://") && !settings.url.starts_with("http://") {
        return Err(format!(
            "jwks_uri is {}, and no https:// address",
            shown(&jwks_uri)
        ));
    }
    let (keys, age) = get(&jwks_uri, ca_file.as_deref()).await?;
    let keys = KeySet::parse(&keys).map_err(|error| format!("{}: {error}", shown(&jwks_uri)))?;
    Ok((keys, age))
}

/// Fetches a document of at most 256 KiB, and how long it may be kept.
async fn get(text: &str, ca_file: Option<&Path>) -> Result<(Vec<u8>, Option<Duration>), String> {
    let url = IssuerSettings::address(text).ok_or_else(|| {
        let url = shown(text);
        format!("jwks_uri is {url}; allowed is https://, or http:// to a loopback address")
    })?;
    let failed = |error: reqwest::Error| cause(&error);
    let is_tls = url.scheme() == "https";
    let ca = ca_file.map(|path| PemFile::new("ca_file of the issuer", path));
    let tls = if is_tls {
        ClientFiles { ca, identity: None }.config()
    } else {
        no_tls()
    };
    let mut builder = Client::builder()
        .connect_timeout(FETCH_LIMIT)
        .timeout(FETCH_LIMIT)
        .tls_backend_preconfigured(tls.map_err(|error| error.to_string())?)
        // A redirect could lead to any host, over plain HTTP.
        .redirect(redirect::Policy::none())
        .retry(reqwest::retry::never())
        .user_agent(concat!("latchgate/", env!("CARGO_PKG_VERSION")));
    if !is_tls {
        builder = builder.no_proxy();
    }
    let client = builder.build().map_err(failed)?;
    let mut response = client.get(url).send().await.map_err(failed)?;
    let status = response.status().as_u16();
    if status != 200 {
        return Err(format!("{} answers with the status {status}", shown(text)));
    }
    let header = response.headers().get(CACHE_CONTROL);
    let age = header
        .and_then(|value| value.to_str().ok())
        .and_then(max_age);
    let mut body = Vec::new();
    while let Some(more) = response.chunk().await.map_err(failed)? {
        body.extend_from_slice(&more);
        if body.len() > KeySet::MAX_LEN {
            return Err(format!("{} has more than 256 KiB", shown(text)));
        }
    }
    Ok((body, age))
}

fn read_pinned(path: &Path) -> Result<KeySet, String> {
    let file = path.display();
    let bytes = bounded_file::read(path, KeySet::MAX_LEN as u64)
        .map_err(|error| format!("cannot read {file}: {error}"))?;
    KeySet::parse(&bytes).map_err(|error| format!("{file}: {error}"))
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
