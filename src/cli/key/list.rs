//! `latchgate key list`: shows who may do what.

use std::{path::PathBuf, time::SystemTime};

use clap::Args;
use serde_json::{Value, json};

use crate::{
    auth::{KeyEntry, KeysFile, Prefixes},
    cli::{
        caller::environment::Environment,
        error::CliError,
        sources::SourceArgs,
        terminal::table::{aligned, or_dash},
    },
    clock::{Clock, SystemClock},
};

/// Show who may do what, and never a secret
///
/// Reads the keys file, and asks no gateway: what it shows is in force as soon as the gateways have
/// read the file.
#[derive(Args)]
pub(in crate::cli) struct ListArgs {
    #[command(flatten)]
    file: KeysFileArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Which keys file is meant.
#[derive(Args)]
pub(super) struct KeysFileArgs {
    /// The keys file, if it is not the one that the configuration names
    #[arg(long, value_name = "FILE")]
    keys: Option<PathBuf>,
    /// The configuration file that names the keys file [env: `LATCHGATE_CONFIG`]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

// === impl ListArgs ===

impl ListArgs {
    pub(super) fn text(&self, environment: &Environment) -> Result<String, CliError> {
        let ring = self.file.find(environment)?.read()?;
        let now = SystemClock.wall();
        if self.json {
            let keys = ring.keys().iter().map(|key| as_json(key, now));
            return Ok(json!({"keys": keys.collect::<Vec<_>>()}).to_string());
        }
        let mut rows = vec![HEAD.map(str::to_owned)];
        rows.extend(ring.keys().iter().map(|key| row(key, now)));
        Ok(aligned(&rows))
    }
}

// === impl KeysFileArgs ===

impl KeysFileArgs {
    pub(super) fn find(&self, environment: &Environment) -> Result<KeysFile, CliError> {
        if let Some(path) = &self.keys {
            return Ok(KeysFile::new(path));
        }
        let sources = SourceArgs::with_file(self.config.clone());
        let auth = sources.of(environment).load()?.config.auth;
        if auth.has_keys() {
            Ok(KeysFile::new(auth.keys_file))
        } else {
            Err(CliError::NoKeysFile)
        }
    }
}

const HEAD: [&str; 8] = [
    "NAME", "IDS", "ACQUIRE", "VIEW", "BREAK", "METRICS", "EXPIRES", "LIMITS",
];

fn row(key: &KeyEntry, now: SystemTime) -> [String; 8] {
    let expires = expires_at(key).map(|end| {
        if key.is_expired(now) {
            format!("{end} EXPIRED")
        } else {
            end
        }
    });
    let metrics = key.metrics.then(|| "yes".to_owned());
    let limits: Vec<_> = limits(key)
        .into_iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    let limits = Some(limits.join(" ")).filter(|text| !text.is_empty());
    [
        key.name.to_string(),
        ids(key).join(" "),
        key.acquire.to_string(),
        key.view.to_string(),
        key.breaks.to_string(),
        or_dash(metrics),
        or_dash(expires),
        or_dash(limits),
    ]
}

fn as_json(key: &KeyEntry, now: SystemTime) -> Value {
    let list = |prefixes: &Prefixes| prefixes.iter().map(Value::from).collect::<Value>();
    let mut object = json!({
        "name": &*key.name,
        "ids": ids(key),
        "acquire": list(&key.acquire),
        "view": list(&key.view),
        "break": list(&key.breaks),
        "metrics": key.metrics,
        "expires_at": expires_at(key),
        "expired": key.is_expired(now),
    });
    for (name, value) in limits(key) {
        object[name] = value;
    }
    object
}

fn ids(key: &KeyEntry) -> Vec<String> {
    key.secrets
        .iter()
        .map(|secret| secret.id.to_string())
        .collect()
}

fn expires_at(key: &KeyEntry) -> Option<String> {
    let end = key.expires_at?;
    Some(humantime::format_rfc3339_seconds(end).to_string())
}

/// The limits that the key has, as the file calls them.
fn limits(key: &KeyEntry) -> Vec<(&'static str, Value)> {
    let limits = &key.limits;
    let all = [
        (
            "max_ttl_ms",
            limits.max_ttl.map(|ttl| ttl.as_millis().into()),
        ),
        (
            "requests_per_second",
            limits.rate.map(|rate| whole(rate.per_second)),
        ),
        ("burst", limits.rate.map(|rate| whole(rate.burst))),
        ("max_leases", limits.max_leases.map(Value::from)),
        ("max_waiters", limits.max_waiters.map(Value::from)),
        ("max_streams", limits.max_streams.map(Value::from)),
    ];
    let set = |(name, value): (_, Option<Value>)| Some((name, value?));
    all.into_iter().filter_map(set).collect()
}

/// A rate is a whole number in the file, so it is shown as one.
fn whole(number: f64) -> Value {
    format!("{number:.0}")
        .parse::<u64>()
        .map_or(Value::Null, Value::from)
}
