//! `latchgate healthcheck`.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use clap::Args;
use rustls::{
    ClientConfig, DigitallySignedStruct, Error, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::TlsConnector;

use crate::tls::{IdentityFiles, TlsError, provider};

use super::{
    caller::{connection::IdentityArgs, environment::Environment},
    error::CliError,
    sources::SourceArgs,
    terminal::{duration, output},
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
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = duration::parse)]
    timeout: Duration,
    #[command(flatten)]
    identity: IdentityArgs,
    #[command(flatten)]
    sources: SourceArgs,
}

/// More than any answer on health is long.
const LONGEST_ANSWER: u64 = 64 * 1024;

pub(super) async fn healthcheck(
    args: &HealthcheckArgs,
    environment: &Environment,
) -> Result<(), CliError> {
    let config = args.sources.of(environment).load()?.config;
    if config.listen.port() == 0 {
        return Err(CliError::Argument {
            flag: "listen",
            error: "is port 0, so the gateway took a free one that only it knows".to_owned(),
        });
    }
    let address = reachable(config.listen);
    let probe = if args.ready { "readyz" } else { "healthz" };
    let path = format!("{}/{probe}", config.http.base_path);
    let (scheme, asked) = if config.http.tls.is_on() {
        let tls = any_certificate(args.identity.files(environment)?)?;
        let asked = timeout(args.timeout, ask_over_tls(tls, address, &path)).await;
        ("https", asked)
    } else {
        let asked = timeout(args.timeout, ask(address, &path)).await;
        ("http", asked)
    };
    let outcome = asked.unwrap_or_else(|_elapsed| {
        let waited = duration::show(args.timeout);
        Err(format!("did not answer within {waited}"))
    });
    match outcome {
        Ok(body) => output::answer(&body).map_err(CliError::Output),
        Err(reason) => Err(CliError::Unhealthy {
            url: format!("{scheme}://{address}{path}"),
            reason,
        }),
    }
}

async fn reach(address: SocketAddr) -> Result<TcpStream, String> {
    let stream = TcpStream::connect(address).await;
    stream.map_err(|error| format!("cannot be reached: {error}"))
}

async fn ask(address: SocketAddr, path: &str) -> Result<String, String> {
    let stream = reach(address).await?;
    ask_on(stream, &address.to_string(), path).await
}

async fn ask_over_tls(
    tls: TlsConnector,
    address: SocketAddr,
    path: &str,
) -> Result<String, String> {
    let stream = tls.connect(address.ip().into(), reach(address).await?);
    let stream = stream
        .await
        .map_err(|error| format!("does not come to TLS: {error}"))?;
    let asked = ask_on(stream, &address.to_string(), path).await;
    asked.map_err(|reason| {
        // It is told so after the handshake, by a name that says it.
        if reason.contains("CertificateRequired") {
            "wants a client certificate: name one with --client-cert-file and --client-key-file"
                .to_owned()
        } else {
            reason
        }
    })
}

/// Asks for a page and answers its body if the status is 200.
async fn ask_on(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    host: &str,
    path: &str,
) -> Result<String, String> {
    let broken = |error| format!("broke off: {error}");
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: latchgate-healthcheck\r\n\
         Connection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.map_err(broken)?;
    let mut answer = Vec::new();
    let mut stream = stream.take(LONGEST_ANSWER);
    stream.read_to_end(&mut answer).await.map_err(broken)?;
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let mut words = head.lines().next().unwrap_or_default().split(' ');
    match (words.next(), words.next()) {
        (Some(version), Some("200")) if version.starts_with("HTTP/1.") => Ok(body.to_owned()),
        (Some(version), Some(status)) if version.starts_with("HTTP/1.") => {
            Err(format!("answered with {status}: {}", body.trim_end()))
        }
        _ => Err("did not answer in HTTP".to_owned()),
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

// === Any certificate ===
//
// TLS that accepts whatever certificate is shown: for a question to this machine that tells nothing.

/// Accepts every certificate whose key the other side has.
#[derive(Debug)]
struct AnyCertificate(WebPkiSupportedAlgorithms);

/// TLS to whoever it is, with a certificate to show to one that asks for it.
pub(super) fn any_certificate(identity: Option<IdentityFiles>) -> Result<TlsConnector, TlsError> {
    let provider = provider();
    let verifier = AnyCertificate(provider.signature_verification_algorithms);
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let config = match identity {
        None => builder.with_no_client_auth(),
        Some(files) => {
            let identity = files.read()?;
            builder.with_client_auth_cert(identity.chain, identity.key)?
        }
    };
    Ok(TlsConnector::from(Arc::new(config)))
}

// === impl AnyCertificate ===

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.0)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}
