//! The life of a gateway process.

use std::{sync::Arc, time::Duration};

use axum::middleware::from_fn_with_state;
use clap::Args;
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
    sync::Notify,
    time::{Instant, timeout, timeout_at},
};
use tracing::{info, warn};

use crate::{
    auth::{Gate, KeysFile, KeysWatch},
    cli::{environment::Environment, error::CliError, output, sources::SourceArgs},
    clock::{Clock, SystemClock},
    config::{AuthConfig, Config},
    engine::Engine,
    http::{self, Gateway},
    lifecycle::Lifecycle,
    store::{self, Store},
    telemetry,
};

use super::{ServeError, greeting::greeting, signals::Signals, under_way::UnderWay};

/// How long requests under way and idle connections may take to end, even if the grace period is
/// over.
const LAST_ANSWERS: Duration = Duration::from_secs(1);
/// How long the store may take to finish, even if the grace period is over: it only has to write
/// down what it has.
const STORE_CLOSE: Duration = Duration::from_secs(2);

/// Serve locks over HTTP; what `latchgate` does without a command
///
/// With nothing configured it listens on 127.0.0.1:7420 and keeps leases durably in
/// ./latchgate-data. It ends on TERM or INT: no new acquires from then on, renew and release go on
/// until nothing is left to do or the grace period is over. A second signal ends it at once.
#[derive(Args)]
pub(in crate::cli) struct ServeArgs {
    #[command(flatten)]
    sources: SourceArgs,
}

/// Serves until a signal ends it.
pub(in crate::cli) fn serve(args: &ServeArgs, environment: &Environment) -> Result<(), CliError> {
    let config = args.sources.of(environment).load()?.config;
    telemetry::init(&config.log).map_err(ServeError::from)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(CliError::Runtime)?;
    let outcome = runtime.block_on(run(Arc::new(config)));
    // Whatever is left after a second signal or the grace period is not waited for.
    runtime.shutdown_background();
    Ok(outcome?)
}

async fn run(config: Arc<Config>) -> Result<(), ServeError> {
    // First of all, so that no signal is missed.
    let mut signals = Signals::new().map_err(ServeError::Signals)?;
    let listener = TcpListener::bind(config.listen).await;
    let cannot_listen = |error| ServeError::Listen {
        address: config.listen,
        error,
    };
    let listener = listener.map_err(cannot_listen)?;
    let address = listener.local_addr().map_err(cannot_listen)?;
    let lifecycle = Lifecycle::new();
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let gate = gate(&config.auth, &clock, &lifecycle)?;
    let store = store::open(&config, Arc::clone(&clock), &lifecycle).await?;
    let engine = Engine::start(Arc::clone(&store), lifecycle.clone(), &config.limits);
    let gateway = Gateway::new(engine, Arc::clone(&config), clock).behind(gate);
    let under_way = UnderWay::new();
    let count = from_fn_with_state(under_way.clone(), UnderWay::count);
    let router = http::router(gateway).layer(count);

    if config.insecure_no_auth && !address.ip().to_canonical().is_loopback() {
        warn!(%address, "there is no authentication: whoever reaches this address can take every lock");
    }
    // If nobody can read it, the gateway serves all the same.
    drop(output::answer(&greeting(
        address,
        &config.http.base_path,
        &store.describe(),
        config.auth.has_keys(),
    )));
    let accepting = (lifecycle.clone(), Arc::clone(&config));
    lifecycle.spawn(async move {
        let (lifecycle, config) = accepting;
        http::serve(listener, router, &config.http, &lifecycle).await;
    });
    stop(&mut signals, &lifecycle, &under_way, &*store, &config).await
}

/// Who is let in, as the keys file says from now on.
fn gate(
    config: &AuthConfig,
    clock: &Arc<dyn Clock>,
    lifecycle: &Lifecycle,
) -> Result<Gate, ServeError> {
    if !config.has_keys() {
        return Ok(Gate::open());
    }
    let (watch, ring) = KeysWatch::open(KeysFile::new(&config.keys_file))?;
    info!(
        keys = ring.keys().len(),
        file = config.keys_file,
        "the API keys were read"
    );
    let gate = Gate::guarded(ring, config, Arc::clone(clock));
    let asked = Arc::new(Notify::new());
    let mut hup = signal(SignalKind::hangup()).map_err(ServeError::Signals)?;
    let (ask, stopped) = (Arc::clone(&asked), lifecycle.stopped());
    lifecycle.spawn_background(async move {
        let mut stopped = std::pin::pin!(stopped);
        loop {
            tokio::select! {
                () = &mut stopped => return,
                heard = hup.recv() => match heard {
                    Some(()) => ask.notify_one(),
                    None => return,
                },
            }
        }
    });
    let (clock, tasks) = (Arc::clone(clock), lifecycle.clone());
    lifecycle.spawn_background(watch.keep_current(gate.clone(), clock, asked, tasks));
    Ok(gate)
}

/// Waits for a signal and ends everything in order.
async fn stop(
    signals: &mut Signals,
    lifecycle: &Lifecycle,
    under_way: &UnderWay,
    store: &dyn Store,
    config: &Config,
) -> Result<(), ServeError> {
    let signal = signals.next().await;
    let grace = config.shutdown.grace_ms.duration();
    info!(
        signal,
        ?grace,
        "draining: no new acquires, renew and release go on"
    );
    lifecycle.drain();
    let deadline = Instant::now() + grace;
    let ending = async {
        // Either way it is time to stop.
        drop(timeout_at(deadline, under_way.quiet()).await);
        let left = deadline.saturating_duration_since(Instant::now());
        let ended = lifecycle.stop(left.max(LAST_ANSWERS)).await;
        match timeout(STORE_CLOSE, store.close()).await {
            Ok(()) => Ok(ended?),
            Err(_elapsed) => Err(ServeError::StoreLeft),
        }
    };
    tokio::select! {
        outcome = ending => outcome,
        _ = signals.next() => Err(ServeError::SecondSignal),
    }
}
