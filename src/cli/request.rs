//! What the commands that acquire ask for.

use std::time::Duration;

use clap::Args;

use crate::{
    client::AcquireRequest,
    lock::{Metadata, Owner},
};

use super::{duration, environment::Environment, error::CliError, metadata, owner};

/// The options of every command that acquires.
#[derive(Debug, Args)]
pub(super) struct RequestArgs {
    /// How long the lease lasts: 30s, 500ms, 2m [default: the gateway's, 30s]
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    pub(super) ttl: Option<Duration>,
    /// The longest time that the lease may be kept with renewals
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    max_hold: Option<Duration>,
    /// Who asks, for people to read [default: USER@HOST]
    #[arg(long)]
    owner: Option<String>,
    /// A fact to attach to the lease; may be repeated
    #[arg(long = "meta", value_name = "NAME=VALUE", value_parser = metadata::entry)]
    meta: Vec<(String, String)>,
}

// === impl RequestArgs ===

impl RequestArgs {
    /// A request that waits for so long.
    pub(super) fn request(
        &self,
        wait: Duration,
        environment: &Environment,
    ) -> Result<AcquireRequest, CliError> {
        let argument = |flag, error: String| CliError::Argument { flag, error };
        let owner = match &self.owner {
            Some(text) => {
                Some(Owner::new(text).map_err(|error| argument("--owner", error.to_string()))?)
            }
            None => owner::default(environment),
        };
        let metadata: Metadata =
            metadata::of(&self.meta).map_err(|error| argument("--meta", error))?;
        Ok(AcquireRequest {
            ttl: self.ttl,
            wait,
            max_hold: self.max_hold,
            owner,
            metadata,
            idempotency_key: None,
        })
    }
}
