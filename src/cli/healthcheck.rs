//! `latchgate healthcheck`: checks whether the configured gateway answers.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};

use clap::Args;
use reqwest::{Client, Identity, redirect};
use rustls::crypto::CryptoProvider;

use crate::{
    client::SetupError,
    tls::{IdentityFiles, cause, provider},
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

/// Check whether the gateway that is configured here answers
///
/// For containers without curl. Reads the same file and environment as `latchgate serve`: give it the flags of the
/// gateway. Ends with 0 if the gateway answers, and with 1 if it does not. Only --ready checks the store, and even
/// then an unavailable store does not fail the check. A listen address that stands for all addresses (0.0.0.0) is
/// checked on loopback. Over TLS every certificate is accepted, because the command calls its own machine and sends
/// no secret: an expired certificate is no reason to restart a gateway.
#[derive(Args)]
pub(super) struct HealthcheckArgs {
    /// Check whether the gateway should receive requests (/readyz): it fails if the gateway is about to stop, or is
    /// configured so that it cannot keep its promises
    #[arg(long)]
    ready: bool,
    // Shorter than the time-outs of common probes (3 s and more), so that the command can print the reason.
    /// How long the answer may take
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = text::parse_duration)]
    timeout: Duration,
    #[command(flatten)]
    identity: IdentityArgs,
    #[command(flatten)]
    sources: SourceArgs,
}

/// The maximum length of an answer to the health check, in bytes. No health report of a gateway is longer.
const LONGEST_ANSWER: usize = 64 * 1024;

pub(super) async fn healthcheck(
    args: &HealthcheckArgs,
    environment: &Environment,
) -> Result<(), CliError> {
    let config = args.sources.with_environment(environment).load()?.config;
    if config.listen.port() == 0 {
        let unknown = "is port 0, so the gateway chose a free port, which this command does not \
                       know";
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

/// An HTTP client that accepts every certificate, because it calls its own machine and sends no secret.
fn client(identity: Option<IdentityFiles>, limit: Duration) -> Result<Client, CliError> {
    // `install_default` fails only if a TLS provider is already installed, which is then the same provider.
    drop(CryptoProvider::install_default((*provider()).clone()));
    let mut builder = Client::builder()
        .tls_danger_accept_invalid_certs(true)
        .timeout(limit)
        .no_proxy()
        .redirect(redirect::Policy::none())
        .retry(reqwest::retry::never())
        .user_agent("latchgate-healthcheck");
    if let Some(files) = identity {
        // Read before the client is built, because errors of this call say which file is wrong and why.
        files.read()?;
        let pem = fs::read(files.certificate.path()).and_then(|mut pem| {
            // If the certificate file ends without a newline, the key must still begin on a new line.
            pem.push(b'\n');
            pem.extend(fs::read(files.key.path())?);
            Ok(pem)
        });
        let identity = Identity::from_pem(&pem.map_err(CliError::runtime)?);
        builder = builder.identity(identity.map_err(SetupError::Http)?);
    }
    Ok(builder.build().map_err(SetupError::Http)?)
}

/// Requests a page of the gateway, and returns its body if the status is 200.
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

/// Describes why the gateway did not answer the health check.
fn reason(error: &reqwest::Error, limit: Duration) -> String {
    // Every certificate is accepted, so none is distrusted.
    let causes = cause(error, "");
    // A gateway that requires a client certificate rejects this client after the handshake, with a TLS alert of this
    // name.
    if causes.contains("CertificateRequired") {
        "wants a client certificate: name one with --client-cert-file and --client-key-file"
            .to_owned()
    } else if error.is_timeout() {
        format!("did not answer within {}", duration(limit))
    } else if error.is_connect() {
        format!("cannot be reached: {causes}")
    } else {
        format!("ended the connection early: {causes}")
    }
}

// === Reachable ===
//
// The address at which a program on this machine reaches the gateway.

/// The address to connect to for a listen address: loopback if the gateway listens on all addresses.
pub(super) fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}
