//! `latchgate key new`: makes an API key.

#![expect(
    clippy::doc_markdown,
    reason = "these doc comments are help texts for a terminal"
)]

use std::{
    fmt::Write,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::Args;
use serde_json::json;

use crate::{
    auth::{ApiKey, KeysFile},
    cli::{
        error::CliError,
        terminal::{duration, output},
    },
    clock::{Clock, SystemClock},
};

use super::change::append;

/// Make an API key: prints it, once, and what to paste into the keys file
///
/// The key goes to whoever is to use it (LATCHGATE_KEY, or Authorization: Bearer KEY), the [[key]]
/// table into the file that auth.keys_file names. The file holds only a hash: a key that was lost
/// cannot be shown again. `latchgate key rotate` replaces the secret of a key.
///
/// With --append the table is in the file at once, and standard output is the key and nothing else:
/// KEY=$(latchgate key new --name ci --acquire ci: --append keys.toml).
#[derive(Args)]
pub(in crate::cli) struct NewArgs {
    /// What the key is called, in logs and in the list
    #[arg(long, value_name = "NAME")]
    name: String,
    /// Names that it may acquire, hold and renew: a prefix such as deploy: with the colon, or * for
    /// all; may be repeated
    #[arg(long, value_name = "PREFIX")]
    acquire: Vec<String>,
    /// Names that it may inspect and list, and whose events it may read
    #[arg(long, value_name = "PREFIX")]
    view: Vec<String>,
    /// Names that it may break
    #[arg(long = "break", value_name = "PREFIX")]
    breaks: Vec<String>,
    /// It may read metrics
    #[arg(long)]
    metrics: bool,
    /// When it ends: after a while (90d), or at a time in UTC (2027-01-31T00:00:00Z)
    #[arg(long, value_name = "WHEN")]
    expires: Option<String>,
    /// The longest TTL that it may ask for, such as 5m
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    max_ttl: Option<Duration>,
    /// How many requests it may send in a second; renew and release are not counted
    #[arg(long, value_name = "N")]
    requests_per_second: Option<u64>,
    /// How many of these at once, after a pause; as many as in a second if it is left out
    #[arg(long, value_name = "N")]
    burst: Option<u64>,
    /// How many leases it may have from one gateway
    #[arg(long, value_name = "N")]
    max_leases: Option<u64>,
    /// How many of its requests may wait at one gateway
    #[arg(long, value_name = "N")]
    max_waiters: Option<u64>,
    /// How many streams it may have at one gateway
    #[arg(long, value_name = "N")]
    max_streams: Option<u64>,
    /// Add the table to this keys file, which is made if it is not there
    ///
    /// In one step, so that a gateway reads the file without the key or with it, and only if a gateway would
    /// take the whole file: no other key may have its name. A file that is there keeps its mode and its
    /// owner; one that is made can be read by you alone.
    #[arg(long, value_name = "FILE")]
    append: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

// === impl NewArgs ===

impl NewArgs {
    /// Makes a key and prints it.
    pub(super) fn make(&self) -> Result<(), CliError> {
        let key = ApiKey::random();
        let secret = format!("{}:sha256:{}", key.id(), key.hash());
        let table = self.table(&secret)?;
        // What a gateway would refuse is refused here.
        KeysFile::new("the new key").parse(&table)?;
        if let Some(file) = &self.append {
            append(file, &table)?;
        }
        let answer = self.answer(&key, &secret, &table);
        output::answer(&answer).map_err(|error| match &self.append {
            None => CliError::Output(error),
            // Nobody will ever know the key.
            Some(file) => CliError::KeyNotWritten {
                error,
                remedy: format!("remove {} from {}", self.name, file.display()),
            },
        })?;
        if let (Some(file), false) = (&self.append, self.json) {
            self.note_appended(file, &key);
        }
        Ok(())
    }

    fn note_appended(&self, file: &Path, key: &ApiKey) {
        output::note(&format!(
            "added the key {} (id {}) to {}; it is shown only this once",
            self.name,
            key.id(),
            file.display()
        ));
    }

    fn answer(&self, key: &ApiKey, secret: &str, table: &str) -> String {
        if self.json {
            let (id, key) = (key.id().to_string(), key.expose());
            let object =
                json!({"name": self.name, "id": id, "key": key, "secret": secret, "toml": table});
            return object.to_string();
        }
        if self.append.is_some() {
            return key.expose().to_owned();
        }
        format!(
            "# The key. It is shown only this once:\n{}\n\n# For the keys file. To give a key \
             that is there a new secret, add only the text in `secrets` to its own.\n{table}",
            key.expose()
        )
    }

    fn table(&self, secret: &str) -> Result<String, CliError> {
        let mut text = format!("[[key]]\nname = {:?}\nsecrets = [{secret:?}]\n", self.name);
        let mut line = |name: &str, value: String| {
            writeln!(text, "{name} = {value}").expect("writing to a String never fails");
        };
        for (name, prefixes) in [
            ("acquire", &self.acquire),
            ("view", &self.view),
            ("break", &self.breaks),
        ] {
            if !prefixes.is_empty() {
                line(name, format!("{prefixes:?}"));
            }
        }
        if self.metrics {
            line("metrics", "true".to_owned());
        }
        if let Some(expires) = &self.expires {
            line("expires_at", end(expires)?);
        }
        let max_ttl_ms = self.max_ttl.map(|ttl| ttl.as_millis());
        if let Some(ms) = max_ttl_ms {
            line("max_ttl_ms", ms.to_string());
        }
        for (name, number) in [
            ("requests_per_second", self.requests_per_second),
            ("burst", self.burst),
            ("max_leases", self.max_leases),
            ("max_waiters", self.max_waiters),
            ("max_streams", self.max_streams),
        ] {
            if let Some(number) = number {
                line(name, number.to_string());
            }
        }
        Ok(text)
    }
}

/// When a key ends, as the file has it: in whole seconds.
fn end(text: &str) -> Result<String, CliError> {
    let refuse = |why| CliError::argument("--expires", format!("is {text:?}; {why}"));
    let now = SystemClock.wall();
    let time = match humantime::parse_duration(text) {
        Ok(duration) => now.checked_add(duration),
        Err(_) => humantime::parse_rfc3339(text).ok(),
    };
    // Beyond the year 9999 there is no way to write it.
    let most = humantime::parse_rfc3339("9999-01-01T00:00:00Z").ok();
    let Some(time) = time.filter(|time| Some(*time) < most) else {
        return Err(refuse(
            "expected 90d, or a time in UTC: 2027-01-31T00:00:00Z",
        ));
    };
    let written = humantime::format_rfc3339_seconds(time).to_string();
    let ends = humantime::parse_rfc3339(&written).ok();
    if ends.is_none_or(|ends| ends <= now) {
        return Err(refuse(
            "that is over already: the key would never let anybody in",
        ));
    }
    Ok(written)
}
