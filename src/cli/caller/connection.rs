//! Options of client commands for the gateway and the caller's credentials.

#![expect(
    clippy::doc_markdown,
    reason = "these doc comments are help texts for a terminal"
)]

use std::path::{Path, PathBuf};

use clap::Args;

use crate::{
    client::{ApiKey, Client, ClientOptions, IdToken},
    tls::{ClientFiles, IdentityFiles, PemFile},
    trace_context::TraceContext,
};

use super::{
    super::error::CliError,
    environment::{self, Environment},
};

/// The end of the error text if the command line names a client certificate without its private key.
const WITHOUT_KEY: &str = "needs --client-key-file or LATCHGATE_CLIENT_KEY_FILE with it";
const WITHOUT_CERTIFICATE: &str = "needs --client-cert-file or LATCHGATE_CLIENT_CERT_FILE with it";

/// The long help of `--url`: how several addresses are given, and how long the command tries each gateway.
const URL_HELP: &str = "\
The address of the gateway; several on one store, separated by commas, are tried in turn \
[env: LATCHGATE_URL] [default: http://127.0.0.1:7420]

A gateway that is there and does not answer is asked again for 25s, which is how long a command that does \
not wait for a lock may take to say so (acquire and run: see --wait). An address at which nobody listens is \
tried 4 times in about a second; each try takes 2s where not even a refusal comes back.";

/// The options of every command that calls a gateway.
#[derive(Args)]
#[command(next_help_heading = "Gateway")]
pub(crate) struct ConnectionArgs {
    #[arg(
        long,
        value_name = "URL",
        help = "The address of the gateway; several on one store, separated by commas, are tried in \
                turn [env: LATCHGATE_URL] [default: http://127.0.0.1:7420]",
        long_help = URL_HELP
    )]
    url: Option<String>,
    /// A file with the API key; - reads standard input [env: LATCHGATE_KEY, LATCHGATE_KEY_FILE]
    ///
    /// The key itself is never an argument: every process of the machine could see it.
    ///
    /// A CI job or a pod needs no API key. Without one, the command exchanges the ID token in LATCHGATE_ID_TOKEN, or in
    /// the file that LATCHGATE_ID_TOKEN_FILE names, for a key of the gateway that lives for an hour or so. The file is read
    /// again for each exchange.
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// A PEM file with the authorities to trust for the gateway, instead of those of the system [env:
    /// LATCHGATE_CA_FILE]
    #[arg(long, value_name = "FILE", help_heading = "TLS")]
    ca_file: Option<PathBuf>,
    #[command(flatten)]
    identity: IdentityArgs,
}

/// The options for the client certificate and its private key.
#[derive(Args)]
#[command(next_help_heading = "TLS")]
pub(crate) struct IdentityArgs {
    /// A PEM file with the certificate to show to a gateway that requires one [env: LATCHGATE_CLIENT_CERT_FILE]
    #[arg(long, value_name = "FILE")]
    client_cert_file: Option<PathBuf>,
    /// A PEM file with its private key [env: LATCHGATE_CLIENT_KEY_FILE]
    #[arg(long, value_name = "FILE")]
    client_key_file: Option<PathBuf>,
}

// === impl ConnectionArgs ===

impl ConnectionArgs {
    /// Makes a client that calls the gateways of `--url` with the credentials of the options.
    pub(crate) fn client(&self, environment: &Environment) -> Result<Client, CliError> {
        let mut options = ClientOptions::default();
        let url = match &self.url {
            Some(url) => Some(url.as_str()),
            None => environment.given("LATCHGATE_URL")?,
        };
        if let Some(url) = url {
            url.clone_into(&mut options.url);
        }
        let ca = self.ca_file.as_deref();
        options.tls = ClientFiles {
            ca: file(ca, "--ca-file", "LATCHGATE_CA_FILE", environment)?,
            identity: self.identity.files(environment)?,
        };
        options.key = environment::KEY.read(self.key_file.as_deref(), environment, ApiKey::new)?;
        if options.key.is_none() {
            options.id_token = id_token(environment)?;
        }
        options.trace = environment
            .text("TRACEPARENT")
            .and_then(|parent| TraceContext::parse(parent, environment.text("TRACESTATE")));
        Ok(Client::new(options)?)
    }
}

// === impl IdentityArgs ===

impl IdentityArgs {
    /// The files of the client certificate and its private key, if an option or a variable names them.
    pub(crate) fn files(
        &self,
        environment: &Environment,
    ) -> Result<Option<IdentityFiles>, CliError> {
        let (certificate_flag, key_flag) = ("--client-cert-file", "--client-key-file");
        let certificate = file(
            self.client_cert_file.as_deref(),
            certificate_flag,
            "LATCHGATE_CLIENT_CERT_FILE",
            environment,
        )?;
        let key = file(
            self.client_key_file.as_deref(),
            key_flag,
            "LATCHGATE_CLIENT_KEY_FILE",
            environment,
        )?;
        match (certificate, key) {
            (Some(certificate), Some(key)) => Ok(Some(IdentityFiles { certificate, key })),
            (None, None) => Ok(None),
            (Some(_), None) => Err(CliError::argument(certificate_flag, WITHOUT_KEY)),
            (None, Some(_)) => Err(CliError::argument(key_flag, WITHOUT_CERTIFICATE)),
        }
    }
}

/// The ID token that a variable has or names. Fails at once if there is none, so that no command waits without one.
fn id_token(environment: &Environment) -> Result<Option<IdToken>, CliError> {
    let (variable, token) = if let Some(text) = environment.given(environment::ID_TOKEN)? {
        (environment::ID_TOKEN, IdToken::new(text))
    } else if let Some(path) = environment.given(environment::ID_TOKEN_FILE)? {
        (environment::ID_TOKEN_FILE, IdToken::file(path))
    } else {
        return Ok(None);
    };
    let checked = token.check();
    checked.map_err(|error| CliError::usage(format!("{variable}: {error}")))?;
    Ok(Some(token))
}

/// The file that the flag names; without the flag, the file that the environment variable names.
fn file(
    given: Option<&Path>,
    flag: &'static str,
    variable: &'static str,
    environment: &Environment,
) -> Result<Option<PemFile>, CliError> {
    if let Some(path) = given {
        return Ok(Some(PemFile::new(flag, path)));
    }
    let path = environment.given(variable)?;
    Ok(path.map(|path| PemFile::new(variable, path)))
}

#[cfg(test)]
mod tests {
    use crate::cli::terminal::text::duration;

    use super::*;

    #[test]
    fn the_help_says_for_how_long_a_gateway_is_asked() {
        let options = ClientOptions::default();
        for text in [
            format!("asked again for {}", duration(options.deadline)),
            format!("tried {} times", options.attempts),
            format!("takes {}", duration(options.connect_timeout)),
        ] {
            assert!(URL_HELP.contains(&text), "{text}");
        }
    }
}
