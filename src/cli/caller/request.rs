//! What the commands that acquire ask for.

use std::{collections::BTreeMap, time::Duration};

use clap::Args;

use crate::{
    client::{AcquireMode, AcquireRequest},
    lock::{Limit, Metadata, Owner},
};

use super::{
    super::{error::CliError, terminal::duration},
    environment::Environment,
};

/// The options of every command that acquires.
#[derive(Debug, Args)]
pub(crate) struct RequestArgs {
    /// How long the lease lasts: 30s, 500ms, 2m [default: the gateway's, 30s]
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    pub(crate) ttl: Option<Duration>,
    /// The longest time that the lease may be kept with renewals
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    max_hold: Option<Duration>,
    /// Hold the lock beside others that share it, and not alone
    #[arg(long)]
    shared: bool,
    /// Share the lock as long as fewer than N hold it (implies --shared)
    ///
    /// At most N hold it if all ask with the same N. The lease has a slot, the smallest number from 0 that none
    /// of the others has.
    #[arg(long, value_name = "N", value_parser = limit)]
    limit: Option<Limit>,
    /// Who asks, for people to read [default: USER@HOST]
    #[arg(long, value_parser = Owner::new)]
    owner: Option<Owner>,
    /// A fact to attach to the lease; may be repeated
    #[arg(long = "meta", value_name = "NAME=VALUE", value_parser = entry)]
    meta: Vec<(String, String)>,
}

// === impl RequestArgs ===

impl RequestArgs {
    /// A request that waits for so long.
    pub(crate) fn request(
        &self,
        wait: Duration,
        environment: &Environment,
    ) -> Result<AcquireRequest, CliError> {
        let owner = self.owner.clone().or_else(|| default(environment));
        let metadata = of(&self.meta).map_err(|error| CliError::argument("--meta", error))?;
        Ok(AcquireRequest {
            ttl: self.ttl,
            wait,
            max_hold: self.max_hold,
            mode: self.mode(),
            owner,
            metadata,
            idempotency_key: None,
        })
    }

    fn mode(&self) -> AcquireMode {
        if self.shared || self.limit.is_some() {
            AcquireMode::Shared { limit: self.limit }
        } else {
            AcquireMode::Exclusive
        }
    }
}

fn limit(text: &str) -> Result<Limit, String> {
    number(text, Limit::new)
}

/// Reads a number with a type of its own.
pub(crate) fn number<T, E: ToString>(
    text: &str,
    new: impl FnOnce(u64) -> Result<T, E>,
) -> Result<T, String> {
    let number = text
        .parse()
        .map_err(|_invalid| "expected a whole number".to_owned())?;
    new(number).map_err(|error| error.to_string())
}

// === Metadata ===
//
// `--meta NAME=VALUE`.

/// Reads one entry.
pub(crate) fn entry(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("expected NAME=VALUE".to_owned()),
    }
}

/// Puts entries together. Where a name comes twice nobody can know which was meant.
pub(crate) fn of(entries: &[(String, String)]) -> Result<Metadata, String> {
    let mut map = BTreeMap::new();
    for (name, value) in entries {
        if map.insert(name.clone(), value.clone()).is_some() {
            return Err(format!("has the entry {name:?} twice"));
        }
    }
    Metadata::new(map).map_err(|error| error.to_string())
}

// === Owner ===
//
// Who says that they asked, where `--owner` does not.

/// `USER@HOST`, as a shell's prompt would have it. Not the process: it ends before the lease.
pub(crate) fn default(environment: &Environment) -> Option<Owner> {
    let user = environment
        .text("USER")
        .or_else(|| environment.text("LOGNAME"));
    let uname = rustix::system::uname();
    let host = uname.nodename().to_string_lossy();
    let text = match user {
        Some(user) => format!("{user}@{host}"),
        None => host.into_owned(),
    };
    let text: String = text
        .chars()
        .filter(|c| !c.is_control())
        .take(Owner::MAX_CHARS)
        .collect();
    Owner::new(&text).ok()
}
