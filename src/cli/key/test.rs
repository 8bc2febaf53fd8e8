//! `latchgate key test`: says which API key the claims of an ID token match.

use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};

use crate::{
    auth::Claims,
    bounded_file,
    cli::{caller::environment::Environment, error::CliError, terminal::output},
};

use super::list::KeysFileArgs;

/// Say which API key the claims of an ID token match, and what the program may lock
///
/// Reads the keys file and a JSON file of claims, and calls neither gateway nor issuer. Signature, times and audience of a
/// token are not checked. Prints which keys match, for each other key a claim that differs, and what a program gets by the
/// first key that matches.
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
        let url = claims
            .get("iss")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let issuer = ring.issuers().iter().find(|it| *it.settings.url == *url);
        let issuer =
            issuer.ok_or_else(|| unusable(format!("no [[issuer]] has the url {url:?}")))?;
        let audience = &issuer.settings.audience;
        let mut answer = json!({"audience": audience, "matches": [], "differs": {}});
        let mut matching = Vec::new();
        for (key, rules) in ring.exchanging(&issuer.settings.name) {
            match rules.check(&claims) {
                Ok(()) => matching.push((key, rules)),
                Err(claim) => answer["differs"][&*key.name] = json!(claim),
            }
        }
        let names: Vec<_> = matching.iter().map(|(key, _)| &key.name).collect();
        answer["matches"] = json!(names);
        let Some((key, rules)) = matching.first() else {
            output::answer(&format!("{answer:#}\n"))?;
            return Err(CliError::unexpected("no key matches"));
        };
        let rendered = rules.render(&claims).map_err(|why| {
            let name = &key.name;
            CliError::unexpected(format!(
                "the key {name} matches, and the exchange is refused: {why}"
            ))
        })?;
        answer["permissions"] = json!(key.with_claims(rules, &rendered).permissions);
        answer["owner"] = json!(rendered.owner);
        answer["metadata"] = json!(rendered.metadata);
        output::answer(&format!("{answer:#}\n"))
    }
}
