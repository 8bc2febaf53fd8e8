//! `latchgate healthcheck`.

use std::{
    error::Error,
    fs,
    iter::successors,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};

use clap::Args;
use reqwest::{Client, Identity, redirect};
use rustls::crypto::CryptoProvider;

use crate::{
    client::SetupError,
    tls::{IdentityFiles, provider},
};

use super::{
    caller::{connection::IdentityArgs, environment::Environment},
    config::SourceArgs,
    error::CliError,
    terminal::{
        output,
        text::{self, duration},
    },
};

/// Ask the gateway that is configured here whether it answers
///
/// For containers without curl. It reads the same file and environment as `latchgate serve`: give it
/// the flags that the gateway was started with. It ends with 0 if the gateway answers and with 1 if
/// it does not. The store is asked with --ready only, and a store that is away changes nothing. An
/// address that stands for all of them (0.0.0.0) is asked on loopback. Over TLS it accepts any
/// certificate, because it asks this machine and sends nothing secret: an expired certificate is no
/// reason to restart a gateway.
#[derive(Args)]
pub(super) struct HealthcheckArgs {
    /// Ask whether the gateway should be sent requests (/readyz): not if it is about to stop, or is
    /// configured so that it cannot keep its promises
    #[arg(long)]
    ready: bool,
    // Less than the 3 s and more that common probes are given, so that the reason is told.
    /// How long the answer may take
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = text::parse_duration)]
    timeout: Duration,
    #[command(flatten)]
    identity: IdentityArgs,
    #[command(flatten)]
    sources: SourceArgs,
}

/// More than any answer on health is long.
const LONGEST_ANSWER: usize = 64 * 1024;

pub(super) async fn healthcheck(
    args: &HealthcheckArgs,
    environment: &Environment,
) -> Result<(), CliError> {
    let config = args.sources.of(environment).load()?.config;
    if config.listen.port() == 0 {
        let unknown = "is port 0, so the gateway took a free one that only it knows";
        return Err(CliError::argument("listen", unknown));
    }
    let address = reachable(config.listen);
    let scheme = if config.http.tls.is_on() {
        "https"
    } else {
        "http"
    };
    let probe = if args.ready { "readyz" } else { "healthz" };
    let url = format!("{scheme}://{address}{}/{probe}", config.http.base_path);
    let client = client(args.identity.files(environment)?, args.timeout)?;
    match ask(&client, &url, args.timeout).await {
        Ok(body) => output::answer(&body),
        Err(reason) => Err(CliError::unexpected(format!("{url} {reason}"))),
    }
}

/// A client that accepts every certificate: it asks this machine, and tells nothing.
fn client(identity: Option<IdentityFiles>, limit: Duration) -> Result<Client, CliError> {
    // If there is one already, it is this one.
    drop(CryptoProvider::install_default((*provider()).clone()));
    let mut builder = Client::builder()
        .tls_danger_accept_invalid_certs(true)
        .timeout(limit)
        .no_proxy()
        .redirect(redirect::Policy::none())
        .retry(reqwest::retry::never())
        .user_agent("latchgate-healthcheck");
    if let Some(files) = identity {
        // Says which file is wrong, and why.
        files.read()?;
        let pem = fs::read(files.certificate.path()).and_then(|mut pem| {
            // A file may end without a new line.
            pem.push(b'\n');
            pem.extend(fs::read(files.key.path())?);
            Ok(pem)
        });
        let identity = Identity::from_pem(&pem.map_err(CliError::runtime)?);
        builder = builder.identity(identity.map_err(SetupError::Http)?);
    }
    Ok(builder.build().map_err(SetupError::Http)?)
}

/// Asks for a page and answers its body if the status is 200.
async fn ask(client: &Client, url: &str, limit: Duration) -> Result<String, String> {
    let reason = |error| reason(&error, limit);
    let mut response = client.get(url).send().await.map_err(reason)?;
    let mut body = Vec::new();
    while body.len() < LONGEST_ANSWER
        && let Some(more) = response.chunk().await.map_err(reason)?
    {
        body.extend(more);
    }
    let body = String::from_utf8_lossy(&body);
    match response.status().as_u16() {
        200 => Ok(body.into_owned()),
        status => Err(format!("answered with {status}: {}", body.trim_end())),
    }
}

/// Why there was no answer.
fn reason(error: &reqwest::Error, limit: Duration) -> String {
    let causes = successors(Some(error as &dyn Error), |&error| error.source());
    let causes: Vec<_> = causes.map(ToString::to_string).collect();
    let causes = causes.join(": ");
    // A client is told so after the handshake, by a name that says it.
    if causes.contains("CertificateRequired") {
        "wants a client certificate: name one with --client-cert-file and --client-key-file"
            .to_owned()
    } else if error.is_timeout() {
        format!("did not answer within {}", duration(limit))
    } else if error.is_connect() {
        format!("cannot be reached: {causes}")
    } else {
        format!("broke off: {causes}")
    }
}

// === Reachable ===
//
// Where a program on this machine reaches a gateway.

/// The address to connect to for one that a gateway listens on: loopback for one that stands for all.
pub(super) fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}
