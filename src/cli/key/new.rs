//! `latchgate key new`: makes an API key.

#![expect(
    clippy::doc_markdown,
    reason = "these doc comments are help texts for a terminal"
)]

use std::{collections::BTreeMap, path::PathBuf};

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use serde::Serialize;
use serde_json::json;
use toml::{Value, value::Datetime};

use crate::{
    auth::{ApiKey, KeysFile, Permission},
    cli::{
        error::CliError,
        terminal::{output, text},
    },
    clock::{Clock, SystemClock, parse_time},
};

use super::change::{append, key_not_written};

/// Make an API key: prints it, once, and what to paste into the keys file
///
/// --acquire, --view, --break and --check take a prefix of lock names, such as deploy: with the colon or acme/ with the
/// slash, or * for all; each may be repeated.
///
/// Give the key to its user (LATCHGATE_KEY, or Authorization: Bearer KEY), and put the [[key]] table into the file
/// that auth.keys_file names. The file holds only a hash: a lost key cannot be shown again. `latchgate key rotate`
/// replaces the secret of a key.
///
/// With --append the table is added to the file at once, and standard output is the key and nothing else:
/// KEY=$(latchgate key new --name ci --acquire ci: --append keys.toml).
#[derive(Args)]
pub(in crate::cli) struct NewArgs {
    #[command(flatten)]
    entry: EntryArgs,
    /// Add the table to this keys file, which is created if it does not exist
    ///
    /// The file is replaced in one step, so a gateway reads it without the key or with it. The table is added only
    /// if a gateway would accept the whole file: the name must be new. An existing file keeps its mode and its
    /// owner; a new file can be read by you alone.
    #[arg(long, value_name = "FILE")]
    append: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The fields of the key's table that the command line sets, under their names in the keys file.
#[derive(Args, Serialize)]
struct EntryArgs {
    /// The name of the key, in logs and in the list
    #[arg(long, value_name = "NAME")]
    #[serde(skip)]
    name: String,
    #[command(flatten)]
    #[serde(flatten)]
    permissions: PermissionArgs,
    /// When the key expires: after a time (90d), or at a time in UTC (2027-01-31T00:00:00Z)
    #[arg(long = "expires", value_name = "WHEN", value_parser = end)]
    expires_at: Option<Datetime>,
    /// The longest TTL that the key may request, such as 5m
    #[arg(long = "max-ttl", value_name = "DURATION", value_parser = text::parse_millis)]
    max_ttl_ms: Option<u64>,
    /// How many requests the key may send in a second; renew and release do not count
    #[arg(long, value_name = "N")]
    requests_per_second: Option<u64>,
    /// How many of these requests at once, after a pause [default: as many as in a second]
    #[arg(long, value_name = "N")]
    burst: Option<u64>,
    /// How many leases the key may have from one gateway
    #[arg(long, value_name = "N")]
    max_leases: Option<u64>,
    /// How many of the key's requests may wait at one gateway
    #[arg(long, value_name = "N")]
    max_waiters: Option<u64>,
    /// How many streams the key may have at one gateway
    #[arg(long, value_name = "N")]
    max_streams: Option<u64>,
}

/// The permissions of the key: one flag for each permission, with the values that the keys file gets.
#[derive(Serialize)]
struct PermissionArgs(BTreeMap<&'static str, Value>);

// === impl NewArgs ===

impl NewArgs {
    /// Makes an API key and prints it.
    pub(in crate::cli) fn make(&self) -> Result<(), CliError> {
        let key = ApiKey::random();
        let secret = format!("{}:sha256:{}", key.id(), key.hash());
        let entry = toml::to_string(&self.entry).expect("TOML has texts, numbers and lists");
        let name = &self.entry.name;
        let table = format!("[[key]]\nname = {name:?}\nsecrets = [{secret:?}]\n{entry}");
        // Checks the table with the rules of the gateway, so that the command prints no key that a gateway would
        // refuse.
        KeysFile::new("the new key").parse(&table)?;
        if let Some(file) = &self.append {
            append(file, &table)?;
        }
        let answer = self.answer(&key, &secret, &table);
        let Some(file) = &self.append else {
            return output::answer(&answer);
        };
        let (id, file) = (key.id(), file.display());
        output::write(&answer)
            .map_err(|error| key_not_written(&error, &format!("remove {name} from {file}")))?;
        if !self.json {
            output::note(&format!(
                "added the key {name} (id {id}) to {file}; it is shown only this once"
            ));
        }
        Ok(())
    }

    fn answer(&self, key: &ApiKey, secret: &str, table: &str) -> String {
        if self.json {
            let (id, key) = (key.id().to_string(), key.expose());
            let object = json!({"name": self.entry.name, "id": id, "key": key, "secret": secret, "toml": table});
            return object.to_string();
        }
        if self.append.is_some() {
            return key.expose().to_owned();
        }
        format!(
            "# The key. It is shown only this once:\n{}\n\n# For the keys file. To give an \
             existing key a new secret, add only the text in `secrets` to the key's \
             `secrets`.\n{table}",
            key.expose()
        )
    }
}

// === impl PermissionArgs ===

impl Args for PermissionArgs {
    fn augment_args(command: Command) -> Command {
        command.args(Permission::ALL.map(|permission| {
            let row = permission.row();
            let flag = Arg::new(row.name).long(row.name);
            if row.is_per_name {
                let flag = flag.action(ArgAction::Append).value_name("PREFIX");
                flag.help(format!("Names that the key may {}", row.allows))
            } else {
                let flag = flag.action(ArgAction::SetTrue);
                flag.help(format!("The key may {}", row.allows))
            }
        }))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for PermissionArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let granted = Permission::ALL.into_iter().filter_map(|permission| {
            let row = permission.row();
            let value = if row.is_per_name {
                let prefixes = matches.get_many::<String>(row.name)?;
                Value::Array(prefixes.cloned().map(Value::String).collect())
            } else {
                matches.get_flag(row.name).then_some(Value::Boolean(true))?
            };
            Some((row.name, value))
        });
        Ok(Self(granted.collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Parses when a key expires, in whole seconds.
fn end(text: &str) -> Result<Datetime, String> {
    let now = SystemClock.wall();
    let time = match humantime::parse_duration(text) {
        Ok(duration) => now.checked_add(duration),
        Err(_) => parse_time(text).map(Into::into),
    };
    // A time after the year 9999 cannot be written in RFC 3339.
    let most = humantime::parse_rfc3339("9999-01-01T00:00:00Z").ok();
    let Some(time) = time.filter(|time| Some(*time) < most) else {
        return Err("expected 90d, or a time with its offset: 2027-01-31T00:00:00Z".to_owned());
    };
    let written = humantime::format_rfc3339_seconds(time).to_string();
    let ends = humantime::parse_rfc3339(&written).ok();
    if ends.is_none_or(|ends| ends <= now) {
        return Err("this time is over already: the key would never be valid".to_owned());
    }
    written.parse().map_err(|error| format!("{error}"))
}
