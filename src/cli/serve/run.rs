//! Starts a gateway process, and runs it until it ends.

use std::{
    io::{self, ErrorKind},
    net::SocketAddr,
    process::ExitCode,
    sync::Arc,
};

use clap::Args;
use parking_lot::RwLock;
use tokio::{net::TcpListener, sync::Notify};
use tracing::{info, warn};

use crate::{
    audit::Audit,
    auth::{Gate, KeysFile, KeysWatch, SecretWatch, SessionSeal},
    cli::{
        caller::environment::Environment,
        config::SourceArgs,
        error::{CliError, Exit},
        healthcheck::reachable,
        terminal::output,
    },
    clock::{Clock, SystemClock},
    config::{Config, DeclaredLocks, HttpTlsConfig, StoreUrl},
    engine::Engine,
    file_stamp::FileWatch,
    http::{self, AppState, Certificates, CertificatesWatch, InFlightRequests},
    lifecycle::{Lifecycle, Workers},
    release,
    store::{self, AnyStore},
    telemetry::{self, metrics::Metrics, trace::Tracer},
};

use super::{
    service_manager::ServiceManager,
    stop::{ServeSignals, Serving},
};

/// Serve locks over HTTP; what `latchgate` does without a command
///
/// Without configuration, the gateway listens on 127.0.0.1:7420 and keeps leases durably in ./latchgate-data. TERM
/// or INT (Ctrl-C) ends it: it refuses new acquires from then on (or after the delay that is configured for load
/// balancers), and renew and release work until every lease granted or renewed here has ended or the grace period
/// is over. A second signal ends it at once. HUP reads keys, declared locks and certificates again and opens the audit
/// log again, unless it comes from the terminal that was closed.
#[derive(Args)]
pub(in crate::cli) struct ServeArgs {
    #[command(flatten)]
    sources: SourceArgs,
}

/// A gateway that is about to accept connections.
pub(in crate::cli) struct Ready {
    /// The address that clients on this machine can reach.
    pub(in crate::cli) url: String,
    pub(in crate::cli) store: AnyStore,
    pub(in crate::cli) lifecycle: Lifecycle,
}

/// Called when a gateway is ready. Returns the text to print instead of the greeting.
type OnReady<'a> = Box<dyn FnOnce(Ready) -> Result<String, CliError> + 'a>;

/// Serves until a signal ends the gateway.
pub(in crate::cli) fn serve(args: &ServeArgs, environment: &Environment) -> Result<(), CliError> {
    start(
        args.sources.with_environment(environment).load()?.config,
        None,
        environment,
        None,
    )
}

/// Runs a gateway like `latchgate serve`, on a store that the caller of this function provides. Used by benchmarks that
/// measure the gateway without the cost of a store.
pub fn serve_over(config: Config, store: AnyStore) -> ExitCode {
    match start(config, Some(store), &Environment::of_process(), None) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => output::failure(&error),
    }
}

/// Runs a gateway until a signal ends it.
pub(in crate::cli) fn start(
    config: Config,
    store: Option<AnyStore>,
    environment: &Environment,
    on_ready: Option<OnReady<'_>>,
) -> Result<(), CliError> {
    // The log ends last, when this value is dropped, so that all log lines are written.
    let _log = telemetry::init(&config.log).map_err(CliError::unexpected)?;
    // The main runtime accepts connections and runs background tasks; requests run on the worker threads.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(CliError::runtime)?;
    let (workers, running) = Workers::start(config.request_threads()).map_err(CliError::runtime)?;
    let lifecycle = Lifecycle::on(workers);
    let outcome = runtime.block_on(run(
        Arc::new(config),
        store,
        environment,
        lifecycle,
        on_ready,
    ));
    drop(running);
    // Ends the runtime without waiting for tasks that are left after a second signal or the grace period.
    runtime.shutdown_background();
    outcome
}

async fn run(
    config: Arc<Config>,
    store: Option<AnyStore>,
    environment: &Environment,
    lifecycle: Lifecycle,
    on_ready: Option<OnReady<'_>>,
) -> Result<(), CliError> {
    // Signals are received before anything else is started, so that none is missed.
    let mut signals = ServeSignals::new().map_err(CliError::runtime)?;
    let (listener, address) = listen("listen", config.listen).await?;
    let scraped_at = match config.metrics.address() {
        Some(address) => Some(listen("metrics.listen", address).await?),
        None => None,
    };
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let audit = Audit::open(&config.audit, Arc::clone(&clock))?;
    let gate = gate(&config, &clock, &lifecycle, &audit, &mut signals)?;
    let certificates = certificates(&config.http.tls, &clock, &lifecycle, &mut signals)?;
    let tracer = Tracer::start(&config.trace, Arc::clone(&clock), &lifecycle)?;
    let store = match store {
        Some(store) => store,
        None => store::open(&config, Arc::clone(&clock), &lifecycle).await?,
    };
    // Only now the data directory is there, and of this gateway.
    if let StoreUrl::Embedded(directory) = &config.store
        && config.auth.session_secret_file.is_empty()
    {
        gate.keep_exchanged(directory);
    }
    let metrics = Metrics::default();
    // The store is wrapped from outside, so that its metric is the time for which the engine waits for an answer.
    let engine = Engine::start(
        store.clone().measured(metrics.clone()),
        lifecycle.clone(),
        &config.limits,
        &config.history,
        metrics.clone(),
    );
    let mut gateway = AppState::new(engine.clone(), Arc::clone(&config), clock);
    (gateway.gate, gateway.certificates) = (gate, certificates.clone());
    (gateway.audit, gateway.tracer) = (audit.clone(), tracer.clone());
    gateway.declarations = declarations(&config, &engine, &lifecycle, &mut signals)?;
    let in_flight = InFlightRequests::default();
    let gateway = Arc::new(gateway);
    let service = http::service(Arc::clone(&gateway));

    if config.insecure_no_auth && !address.ip().to_canonical().is_loopback() {
        warn!(%address, "there is no authentication: every client that reaches this address can \
                         take every lock");
    }
    audit.started(address, &store.describe());
    signals.audit = audit.clone();
    let text = match on_ready {
        Some(on_ready) => on_ready(Ready {
            url: format!("http://{}", reachable(address)),
            store: store.clone(),
            lifecycle: lifecycle.clone(),
        })?,
        None => greeting(
            address,
            &config.http.base_path,
            &store.describe(),
            config.auth.has_keys(),
            certificates.is_some(),
            scraped_at.as_ref().map(|(_, address)| *address),
        ),
    };
    // A failure is ignored: a gateway that cannot write to its standard output still serves.
    drop(output::answer(&text));
    let accept = |listener, service: http::EdgeService, certificates, in_flight| {
        let (config, metrics, tasks) = (Arc::clone(&config), metrics.clone(), lifecycle.clone());
        lifecycle.spawn(async move {
            let http = &config.http;
            http::serve(
                listener,
                service,
                http,
                certificates,
                &metrics,
                in_flight,
                &tasks,
            )
            .await;
        });
    };
    accept(listener, service, certificates, in_flight.clone());
    if let Some((listener, _)) = scraped_at {
        // Scrapes of metrics do not count as requests in flight, so that a scrape cannot delay the end of the gateway.
        accept(
            listener,
            http::metrics_service(gateway),
            None,
            InFlightRequests::default(),
        );
    }
    let service_manager = ServiceManager::from_environment(environment);
    service_manager.keep_watchdog(&lifecycle);
    service_manager.ready();
    signals.manager = Some(service_manager.clone());
    let serving = Serving {
        service_manager,
        lifecycle,
        in_flight,
        engine,
        store,
        audit,
        tracer,
    };
    serving.stop(&mut signals, &config.shutdown).await
}

async fn listen(
    key: &'static str,
    address: SocketAddr,
) -> Result<(TcpListener, SocketAddr), CliError> {
    let listening = async {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        Ok((listener, address))
    };
    listening.await.map_err(|error: io::Error| {
        let hint = match error.kind() {
            ErrorKind::AddrInUse => {
                let by = if key == "listen" { "--listen" } else { key };
                format!(
                    "; another program, or another gateway, listens on it. Name another address \
                     with {by}"
                )
            }
            ErrorKind::AddrNotAvailable => "; this machine does not have this address".to_owned(),
            ErrorKind::PermissionDenied => "; ports below 1024 need a privilege".to_owned(),
            _ => String::new(),
        };
        let text = format!("{key}: cannot listen on {address}: {error}{hint}");
        CliError::new(Exit::CannotListen, text)
    })
}

/// Reads the certificates of the gateway, and starts a task that reads them again when the files have changed. `None`
/// without TLS.
fn certificates(
    config: &HttpTlsConfig,
    clock: &Arc<dyn Clock>,
    lifecycle: &Lifecycle,
    signals: &mut ServeSignals,
) -> Result<Option<Certificates>, CliError> {
    if !config.is_on() {
        return Ok(None);
    }
    let (watch, certificates) = CertificatesWatch::open(config.clone())?;
    info!(file = config.cert_file, "the certificate was read");
    let asked = Arc::new(Notify::new());
    signals.reload.push(Arc::clone(&asked));
    let (clock, tasks) = (Arc::clone(clock), lifecycle.clone());
    lifecycle.spawn_background(watch.keep_current(certificates.clone(), clock, asked, tasks));
    Ok(Some(certificates))
}

/// Reads the keys file into a gate that admits callers, and starts a task that reads the file again when it has
/// changed.
fn gate(
    config: &Config,
    clock: &Arc<dyn Clock>,
    lifecycle: &Lifecycle,
    audit: &Audit,
    signals: &mut ServeSignals,
) -> Result<Gate, CliError> {
    let (config, store) = (&config.auth, &config.store);
    if !config.has_keys() {
        return Ok(Gate::open());
    }
    let (watch, ring) = KeysWatch::open(KeysFile::configured(config, store))?;
    info!(
        keys = ring.keys().len(),
        file = config.keys_file,
        "the API keys were read"
    );
    let secret_watch = SecretWatch::new(config);
    let seal = SessionSeal::open_configured(config)?;
    let gate = Gate::guarded(ring, seal, config, Arc::clone(clock));
    lifecycle.spawn_background(gate.clone().keep_issuers(lifecycle.clone()));
    if let Some(watch) = secret_watch {
        let asked = Arc::new(Notify::new());
        signals.reload.push(Arc::clone(&asked));
        lifecycle.spawn_background(watch.keep_current(gate.clone(), asked, lifecycle.clone()));
    }
    let asked = Arc::new(Notify::new());
    signals.reload.push(Arc::clone(&asked));
    let (clock, tasks) = (Arc::clone(clock), lifecycle.clone());
    lifecycle.spawn_background(watch.with_audit(audit.clone()).keep_current(
        gate.clone(),
        clock,
        asked,
        tasks,
    ));
    Ok(gate)
}

/// Reads the locks file, and starts a task that reads it again when it has changed. `None` without declared locks.
fn declarations(
    config: &Arc<Config>,
    engine: &Engine,
    lifecycle: &Lifecycle,
    signals: &mut ServeSignals,
) -> Result<Option<Arc<RwLock<DeclaredLocks>>>, CliError> {
    let Some(path) = config.locks.path() else {
        return Ok(None);
    };
    let watch = FileWatch::new([path]);
    let read = DeclaredLocks::read(path, &config.limits, &config.store)?;
    info!(file = config.locks.file, "the locks file was read");
    engine.set_declarations(read.hash.clone());
    let declarations = Arc::new(RwLock::new(read));
    let asked = Arc::new(Notify::new());
    signals.reload.push(Arc::clone(&asked));
    let (current, engine) = (Arc::clone(&declarations), engine.clone());
    let report = move |outcome: Option<Result<DeclaredLocks, String>>| match outcome {
        None => {}
        Some(Ok(read)) => {
            info!("the locks file was read again");
            engine.set_declarations(read.hash.clone());
            *current.write() = read;
        }
        Some(Err(error)) => {
            warn!(%error, "the declarations of locks that were read before stay in force");
            current.write().is_outdated = true;
        }
    };
    let (path, config) = (path.to_owned(), Arc::clone(config));
    let read = move || DeclaredLocks::read(&path, &config.limits, &config.store);
    let tasks = lifecycle.clone();
    lifecycle.spawn_background(watch.keep_current(read, asked, tasks, report));
    Ok(Some(declarations))
}

/// The text that the gateway prints at its start: listen address, store, dashboard, and a command to try.
fn greeting(
    address: SocketAddr,
    base_path: &str,
    store: &str,
    has_keys: bool,
    over_tls: bool,
    metrics: Option<SocketAddr>,
) -> String {
    let scheme = if over_tls { "https" } else { "http" };
    let key = if has_keys {
        "-H \"Authorization: Bearer $LATCHGATE_KEY\" "
    } else {
        ""
    };
    let metrics = metrics.map_or_else(String::new, |address| {
        format!("metrics: http://{address}/metrics\n")
    });
    let url = format!("{scheme}://{}{base_path}", reachable(address));
    format!(
        "latchgate {} listens on {scheme}://{address}{base_path}\n\
         store: {store}\n\
         {metrics}\
         dashboard: {url}/dashboard\n\
         try:   curl -X POST {key}{url}/locks/deploy\n",
        release::VERSION
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_to_paste_and_the_dashboard_have_an_address_that_can_be_reached() {
        for (address, url) in [
            ("127.0.0.1:7420", "http://127.0.0.1:7420/p/locks/deploy"),
            ("0.0.0.0:1", "http://127.0.0.1:1/p/locks/deploy"),
            ("[::]:1", "http://[::1]:1/p/locks/deploy"),
            ("192.0.2.1:1", "http://192.0.2.1:1/p/locks/deploy"),
        ] {
            let text = greeting(
                address.parse().unwrap(),
                "/p",
                "a store",
                false,
                false,
                None,
            );
            assert!(text.contains(&format!("curl -X POST {url}\n")), "{text}");
            let dashboard = url.replace("locks/deploy", "dashboard");
            assert!(
                text.contains(&format!("dashboard: {dashboard}\n")),
                "{text}"
            );
            assert!(
                text.contains(&format!("listens on http://{address}/p\n")),
                "{text}"
            );
        }
    }

    #[test]
    fn over_tls_every_address_says_so() {
        let text = greeting(
            "127.0.0.1:1".parse().unwrap(),
            "",
            "a store",
            false,
            true,
            None,
        );
        assert_eq!(text.matches("https://127.0.0.1:1").count(), 3, "{text}");
        assert!(!text.contains("http://"), "{text}");
    }

    #[test]
    fn with_keys_the_line_to_paste_sends_one() {
        let text = greeting(
            "127.0.0.1:1".parse().unwrap(),
            "",
            "a store",
            true,
            false,
            None,
        );
        let line = "curl -X POST -H \"Authorization: Bearer $LATCHGATE_KEY\" http://127.0.0.1:1/";
        assert!(text.contains(line), "{text}");
    }
}
