//! `latchgate key test`: says which API key the claims of an ID token match.

use std::path::PathBuf;

use clap::Args;
use serde_json::Value;

use crate::{
    auth::{Claims, Permission},
    bounded_file,
    cli::{caller::environment::Environment, error::CliError, terminal::output},
    invisible_chars::escape_controls,
};

use super::list::KeysFileArgs;

/// Say which API key the claims of an ID token match, and what the program may lock
///
/// Reads the keys file and a JSON file of claims, and calls neither gateway nor issuer. Signature and times of a token
/// are not checked.
#[derive(Args)]
pub(in crate::cli) struct TestArgs {
    /// The file with the claims, as a JSON object
    #[arg(long, value_name = "FILE")]
    claims: PathBuf,
    #[command(flatten)]
    file: KeysFileArgs,
}

/// The longest file of claims, in bytes.
const MAX_LEN: u64 = 64 * 1024;

// === impl TestArgs ===

impl TestArgs {
    pub(in crate::cli) fn test(&self, environment: &Environment) -> Result<(), CliError> {
        let ring = self.file.find(environment)?.look()?;
        let unusable =
            |why: String| CliError::usage(format!("--claims {}: {why}", self.claims.display()));
        let json = bounded_file::read_text(&self.claims, MAX_LEN)
            .map_err(|error| unusable(error.to_string()))?;
        let claims: Claims = serde_json::from_str(&json)
            .map_err(|error| unusable(format!("it is no JSON object of claims: {error}")))?;
        let text = |name: &str| claims.get(name).and_then(Value::as_str);
        let (Some(url), Some(subject)) = (text("iss"), text("sub")) else {
            return Err(unusable(
                "it has no iss or no sub, which every ID token has".to_owned(),
            ));
        };
        let issuer = ring.issuers().iter().find(|it| *it.settings.url == *url);
        let issuer =
            issuer.ok_or_else(|| unusable(format!("no [[issuer]] has the url {url:?}")))?;
        let (mut lines, mut matched) = (Vec::new(), false);
        let mut say =
            |what: &str, text: &str| lines.push(format!("{what}: {}\n", escape_controls(text)));
        for (key, rules) in ring.exchanging(&issuer.settings.name) {
            match rules.check(&claims) {
                Err(claim) => say(
                    &key.name,
                    &format!("does not match: {claim} differs or is missing"),
                ),
                Ok(()) if matched => say(
                    &key.name,
                    "matches too, for programs that ask for it by name",
                ),
                Ok(()) => {
                    matched = true;
                    say(
                        &key.name,
                        &format!("matches; the program is {} ({subject})", key.name),
                    );
                    let rendered = rules.render(&claims).map_err(|why| {
                        CliError::unexpected(format!(
                            "the key {} matches, and the exchange is refused: {why}",
                            key.name
                        ))
                    })?;
                    for permission in Permission::ALL {
                        let templates = rules
                            .templates_of(permission)
                            .filter_map(|it| rendered.prefixes.get(it));
                        let names = key.permissions.names(permission).iter();
                        let names: Vec<_> = names.chain(templates.map(String::as_str)).collect();
                        if !names.is_empty() {
                            say(permission.row().name, &names.join(" "));
                        }
                    }
                    if let Some(owner) = &rendered.owner {
                        say("owner", owner);
                    }
                    for (name, value) in &rendered.metadata {
                        say(&format!("metadata {name}"), value);
                    }
                }
            }
        }
        if !issuer.settings.is_audience(&claims) {
            let ours = &issuer.settings.audience;
            say(
                "aud",
                &format!("is not {ours}, so a gateway refuses such a token"),
            );
        }
        let answer = lines.concat();
        if matched {
            output::answer(&answer)
        } else {
            Err(CliError::unexpected(format!(
                "no key matches\n{}",
                answer.trim_end()
            )))
        }
    }
}
