//! Runs the gateway of the demo, and removes its directory at the end.

use std::net::SocketAddr;

use clap::Args;

use crate::{
    cli::{
        caller::environment::Environment,
        error::CliError,
        serve::{Ready, start},
    },
    client::{Client, ClientOptions},
    clock::{Clock, SystemClock},
    config::{Config, Millis, StoreUrl},
};

use super::{past::past_hour, team::Team};

/// Serve a store in a temporary directory, with a simulated team that uses its locks
///
/// To look at the dashboard before a gateway has work. All data is simulated: the owner of each lease says so, and each
/// lock has a history of an hour. TERM or INT (Ctrl-C) ends the demo and removes its directory. The demo reads no
/// configuration, neither from a file nor from the environment, so it never opens another store. It has no API keys:
/// everybody who reaches its address can take its locks.
#[derive(Args)]
pub(in crate::cli) struct DemoArgs {
    /// The address to listen on; port 0 takes a free one
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:7420")]
    listen: SocketAddr,
}

/// How long the gateway waits at its end for the leases of the team.
const GRACE: Millis = Millis(2_000);

pub(in crate::cli) fn demo(args: &DemoArgs, environment: &Environment) -> Result<(), CliError> {
    let failed = |what, error| CliError::unexpected(format!("cannot {what}: {error}"));
    let mut directory = tempfile::Builder::new();
    let directory = directory.prefix("latchgate-demo-").tempdir();
    let directory = directory.map_err(|error| failed("make a temporary directory", error))?;
    let path = directory.path().to_owned();
    let mut config = Config {
        listen: args.listen,
        store: StoreUrl::Embedded(path.clone()),
        // The user has named the address.
        insecure_no_auth: !args.listen.ip().to_canonical().is_loopback(),
        ..Config::default()
    };
    // The refusals that the team runs into would hide the address of the page.
    "error".clone_into(&mut config.log.level);
    config.shutdown.grace_ms = GRACE;
    let ready = |ready: Ready| {
        let url = ready.url.clone();
        begin(ready)?;
        Ok(format!(
            "dashboard: {url}/dashboard\n\
             try:   curl {url}/locks/deploy:web\n\
             All data is simulated, in {}, and removed at the end (Ctrl-C).\n",
            path.display()
        ))
    };
    let outcome = start(config, None, environment, Some(Box::new(ready)));
    let removed = directory.close();
    outcome?;
    removed.map_err(|error| failed("remove the temporary directory", error))
}

/// Starts the team, which works until the gateway drains.
fn begin(ready: Ready) -> Result<(), CliError> {
    let Ready {
        url,
        store,
        lifecycle,
    } = ready;
    let options = ClientOptions {
        url,
        ..ClientOptions::default()
    };
    let (client, past) = (Client::new(options)?, past_hour(SystemClock.wall()));
    let drained = lifecycle.drained();
    lifecycle.spawn_background(async move {
        // Without its past, the demo still has a present.
        drop(store.record_history(&past).await);
        let team = Team::new(client);
        tokio::select! {
            () = team.work() => {}
            () = drained => {}
        }
    });
    Ok(())
}
