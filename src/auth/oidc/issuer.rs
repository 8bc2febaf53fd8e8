//! Issuers: who signs ID tokens, and where their keys come from.

use std::{fmt::Display, path::PathBuf, sync::Arc, time::Duration};

use parking_lot::Mutex;
use reqwest::{Client, RequestBuilder, Response, header::CACHE_CONTROL, redirect};
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
    tls::{ClientFiles, PemFile, cause, no_tls},
};

use super::{
    id_token::shown,
    key_cache::{KeyCache, max_age},
    key_set::KeySet,
};

/// An issuer of a keys file, with its keys.
#[derive(Debug)]
pub struct Issuer {
    /// What the keys file says of the issuer.
    pub settings: IssuerSettings,
    cache: Mutex<KeyCache>,
    /// What the issuer has last said of itself. Nothing is known of an issuer whose keys are pinned.
    discovery: Mutex<Option<Arc<Discovery>>>,
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

/// What an issuer says of itself.
#[derive(Debug, Deserialize)]
pub(in crate::auth) struct Discovery {
    issuer: String,
    jwks_uri: String,
    /// Where people sign in. Issuers for programs alone have no such page.
    pub(in crate::auth) authorization_endpoint: Option<String>,
    /// Where a code is exchanged for an ID token.
    pub(in crate::auth) token_endpoint: Option<String>,
    /// Where people sign out.
    pub(in crate::auth) end_session_endpoint: Option<String>,
    /// How a client authenticates at the token endpoint.
    #[serde(default)]
    pub(in crate::auth) token_endpoint_auth_methods_supported: Vec<String>,
}

/// How long one request for keys may take.
pub(in crate::auth) const FETCH_LIMIT: Duration = Duration::from_secs(5);
/// How many requests may wait for the keys of one issuer.
const MAX_WAITS: usize = 64;
const DISCOVERY: &str = "/.well-known/openid-configuration";

// === impl IssuerSettings ===

impl IssuerSettings {
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
            discovery: Mutex::default(),
            fetch: tokio::sync::Mutex::new(()),
            waits: Semaphore::new(MAX_WAITS),
        }
    }

    /// Reads the keys from the file of the operator, if there is one.
    pub(in crate::auth) fn read_pinned(&self) -> Result<(), String> {
        let KeySource::Pinned(path) = &self.settings.source else {
            return Ok(());
        };
        let refused = |why: &dyn Display| {
            let (name, file) = (&self.settings.name, path.display());
            format!("keys_file of the issuer {name:?}: cannot read {file}: {why}")
        };
        let json = bounded_file::read(path, KeySet::MAX_LEN as u64).map_err(|why| refused(&why))?;
        let keys = KeySet::parse(&json).map_err(|why| refused(&why))?;
        *self.cache.lock() = KeyCache::pinned(keys, Instant::now());
        Ok(())
    }

    /// The keys, if any count now.
    pub(in crate::auth) fn keys(&self) -> Option<Arc<KeySet>> {
        self.cache.lock().keys(Instant::now()).cloned()
    }

    /// What the issuer has last said of itself, if anything.
    pub(in crate::auth) fn discovery(&self) -> Option<Arc<Discovery>> {
        self.discovery.lock().clone()
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
            Ok((discovery, keys, age)) => {
                *self.discovery.lock() = Some(Arc::new(discovery));
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

/// Fetches what an issuer says of itself, its keys, and how long they may be kept. A failure is a text for the log.
async fn fetch(settings: &IssuerSettings) -> Result<(Discovery, KeySet, Option<Duration>), String> {
    let discovery = format!("{}{DISCOVERY}", settings.url.trim_end_matches('/'));
    let (document, _) = settings.get("the issuer", &discovery).await?;
    let found: Discovery = serde_json::from_slice(&document)
        .map_err(|_| format!("{discovery} is no OpenID configuration with issuer and jwks_uri"))?;
    if *found.issuer != *settings.url {
        let issuer = shown(&found.issuer);
        return Err(format!("the configuration is of the issuer {issuer}"));
    }
    let uri = &found.jwks_uri;
    let (keys, age) = settings.get("jwks_uri", uri).await?;
    let keys = KeySet::parse(&keys).map_err(|error| format!("{}: {error}", shown(uri)))?;
    Ok((found, keys, age))
}

// === Requests to an issuer ===

impl IssuerSettings {
    /// An address that the issuer names. Only an issuer on this machine may do without TLS.
    pub(in crate::auth) fn named(&self, what: &str, text: &str) -> Result<Url, String> {
        let is_safe = |url: &Url| url.scheme() == "https" || self.url.starts_with("http://");
        Self::address(text).filter(is_safe).ok_or_else(|| {
            let text = shown(text);
            format!(
                "{what} is {text}; allowed is https://, or http:// if the issuer is on this machine"
            )
        })
    }

    /// Fetches a document, and how long it may be kept.
    async fn get(&self, what: &str, text: &str) -> Result<(Vec<u8>, Option<Duration>), String> {
        let url = self.named(what, text)?;
        let (response, body) = self.ask(&url, Client::get).await?;
        let status = response.status().as_u16();
        if status != 200 {
            return Err(format!("{} answers with the status {status}", shown(text)));
        }
        let header = response.headers().get(CACHE_CONTROL);
        let age = header.and_then(|value| value.to_str().ok());
        Ok((body, age.and_then(max_age)))
    }

    /// Sends a request to the issuer, and reads its answer of at most 256 KiB.
    pub(in crate::auth) async fn ask(
        &self,
        url: &Url,
        request: impl FnOnce(&Client, Url) -> RequestBuilder,
    ) -> Result<(Response, Vec<u8>), String> {
        let failed = |error: reqwest::Error| cause(&error, "ca_file of the issuer");
        let is_tls = url.scheme() == "https";
        let ca = match &self.source {
            KeySource::Discovery(Some(path)) => Some(PemFile::new("ca_file of the issuer", path)),
            KeySource::Discovery(None) | KeySource::Pinned(_) => None,
        };
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
        let mut response = request(&client, url.clone()).send().await.map_err(failed)?;
        let mut body = Vec::new();
        while let Some(more) = response.chunk().await.map_err(failed)? {
            body.extend_from_slice(&more);
            if body.len() > KeySet::MAX_LEN {
                return Err(format!("{} has more than 256 KiB", shown(url.as_str())));
            }
        }
        Ok((response, body))
    }
}
