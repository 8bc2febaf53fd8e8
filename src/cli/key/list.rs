//! `latchgate key list`: shows the keys and their permissions.

use std::{path::PathBuf, time::SystemTime};

use clap::Args;
use serde_json::{Value, json};

use crate::{
    auth::{KeyEntry, KeysFile, Permission},
    cli::{
        caller::environment::Environment,
        config::SourceArgs,
        error::CliError,
        terminal::{
            output,
            text::{aligned, or_dash},
        },
    },
    clock::{Clock, SystemClock},
};

/// Show the API keys and their permissions, never a secret
///
/// Reads the keys file, and calls no gateway: gateways use what it shows as soon as they have read the file.
#[derive(Args)]
pub(in crate::cli) struct KeyListArgs {
    #[command(flatten)]
    file: KeysFileArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The options that say which keys file a command uses.
#[derive(Args)]
pub(super) struct KeysFileArgs {
    /// The keys file, if it is not the one that the configuration names
    #[arg(long, value_name = "FILE")]
    keys: Option<PathBuf>,
    /// The configuration file that names the keys file [env: `LATCHGATE_CONFIG`]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

// === impl KeyListArgs ===

impl KeyListArgs {
    pub(in crate::cli) fn list(&self, environment: &Environment) -> Result<(), CliError> {
        let ring = self.file.find(environment)?.look()?;
        let now = SystemClock.wall();
        if self.json {
            let keys = ring.keys().iter().map(|key| as_json(key, now));
            return output::answer(&json!({"keys": keys.collect::<Vec<_>>()}).to_string());
        }
        let mut rows = vec![head()];
        rows.extend(ring.keys().iter().map(|key| row(key, now)));
        output::answer(&aligned(&rows))
    }
}

// === impl KeysFileArgs ===

impl KeysFileArgs {
    pub(super) fn find(&self, environment: &Environment) -> Result<KeysFile, CliError> {
        if let Some(path) = &self.keys {
            return Ok(KeysFile::new(path));
        }
        let sources = SourceArgs::with_file(self.config.clone());
        let auth = sources.with_environment(environment).load()?.config.auth;
        if auth.has_keys() {
            Ok(KeysFile::new(auth.keys_file))
        } else {
            Err(CliError::usage(
                "no keys file: name it with --keys, or with auth.keys_file in the configuration",
            ))
        }
    }
}

fn head() -> Vec<String> {
    let permissions = Permission::ALL.map(|permission| permission.row().name.to_uppercase());
    let mut head = vec!["NAME".to_owned(), "IDS".to_owned()];
    head.extend(permissions);
    head.extend(["EXPIRES".to_owned(), "LIMITS".to_owned()]);
    head
}

fn row(key: &KeyEntry, now: SystemTime) -> Vec<String> {
    let expires = expires_at(key).map(|end| {
        if key.is_expired(now) {
            format!("{end} EXPIRED")
        } else {
            end
        }
    });
    let limits: Vec<_> = limits(key)
        .into_iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    let limits = Some(limits.join(" ")).filter(|text| !text.is_empty());
    let by = key
        .exchange
        .as_ref()
        .map(|rules| format!("issuer {}", rules.issuer));
    let mut row = vec![
        key.name.to_string(),
        by.unwrap_or_else(|| ids(key).join(" ")),
    ];
    row.extend(Permission::ALL.map(|permission| {
        let names = key.permissions.names(permission);
        if permission.row().is_per_name {
            let rules = key.exchange.as_deref().into_iter();
            let templates = rules.flat_map(|rules| rules.templates_of(permission));
            or_dash(
                Some(names.iter().chain(templates).collect::<Vec<_>>().join(" "))
                    .filter(|text| !text.is_empty()),
            )
        } else {
            or_dash((!names.is_empty()).then_some("yes"))
        }
    }));
    row.extend([or_dash(expires), or_dash(limits)]);
    row
}

fn as_json(key: &KeyEntry, now: SystemTime) -> Value {
    let mut object = json!(key.permissions);
    object["name"] = json!(key.name);
    object["ids"] = json!(ids(key));
    object["issuer"] = json!(key.exchange.as_ref().map(|rules| &rules.issuer));
    object["expires_at"] = json!(expires_at(key));
    object["expired"] = json!(key.is_expired(now));
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

/// The limits that the key has, each with its name in the keys file.
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

/// Converts a rate to a whole number, because the keys file has rates as whole numbers.
fn whole(number: f64) -> Value {
    format!("{number:.0}")
        .parse::<u64>()
        .map_or(Value::Null, Value::from)
}
