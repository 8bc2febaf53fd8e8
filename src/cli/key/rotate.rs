//! `latchgate key rotate`: replaces the secret of a key.

use std::{ops::Range, path::Path};

use clap::Args;
use serde_json::json;
use toml::de::{DeTable, DeValue};

use crate::{
    auth::ApiKey,
    cli::{caller::environment::Environment, error::CliError, terminal::output},
};

use super::{
    change::{change, key_not_written},
    list::KeysFileArgs,
};

/// Give a key a second secret, and later remove the first
///
/// Prints the new secret, once: the key to use from now on. Both secrets are valid until --finish; neither expires
/// on its own. Give the new key to every user of the key, and then run the command with --finish, which removes the
/// old secret: the first of the two in the file. If the new secret was lost, --finish --keep with the id of the old
/// one removes the new one.
///
/// The keys file is replaced in one step, and only if a gateway would accept it. The rest of the file, its mode and
/// its owner stay unchanged; a comment between the two secrets is removed with one of them. Gateways read the file
/// within two seconds.
#[derive(Args)]
pub(in crate::cli) struct RotateArgs {
    /// The name of the key
    name: String,
    /// Remove the old secret: gateways refuse it from then on
    #[arg(long)]
    finish: bool,
    /// The id of the secret that --finish keeps [default: the new one]
    #[arg(long, value_name = "ID", requires = "finish")]
    keep: Option<String>,
    #[command(flatten)]
    file: KeysFileArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

// === impl RotateArgs ===

impl RotateArgs {
    pub(in crate::cli) fn rotate(&self, environment: &Environment) -> Result<(), CliError> {
        let file = self.file.find(environment)?;
        if self.finish {
            self.finish(file.path())
        } else {
            self.begin(file.path())
        }
    }

    fn begin(&self, file: &Path) -> Result<(), CliError> {
        let (name, key) = (&self.name, ApiKey::random());
        let (id, secret) = (key.id(), format!("{}:sha256:{}", key.id(), key.hash()));
        let mut old_id = String::new();
        change(file, |text| {
            let (text, old) = with_secret(text, name, &secret)?;
            old_id = old;
            Ok(text)
        })?;
        let answer = if self.json {
            let (id, key) = (id.to_string(), key.expose());
            json!({"name": name, "id": id, "key": key, "secret": secret, "old_id": old_id})
                .to_string()
        } else {
            key.expose().to_owned()
        };
        let remedy = format!("`latchgate key rotate {name} --finish --keep {old_id}` removes it");
        output::write(&answer).map_err(|error| key_not_written(&error, &remedy))?;
        if !self.json {
            output::note(&format!(
                "added the secret {id} to the key {name} in {}; it is shown only this once. The \
                 old secret, {old_id}, is valid until `latchgate key rotate {name} --finish`. If \
                 the new secret is lost, {remedy}",
                file.display()
            ));
        }
        Ok(())
    }

    fn finish(&self, file: &Path) -> Result<(), CliError> {
        let (name, mut ids) = (&self.name, Default::default());
        change(file, |old| {
            let (text, removed_and_kept) = with_one_secret(old, name, self.keep.as_deref())?;
            ids = removed_and_kept;
            Ok(text)
        })?;
        let (removed, kept) = ids;
        let text = if self.json {
            json!({"name": name, "removed_id": removed, "kept_id": kept}).to_string()
        } else {
            format!("removed the secret {removed} of the key {name}; it has the secret {kept}\n")
        };
        output::answer(&text)
    }
}

/// Returns the text of a keys file with a second secret for the key, and the id of the key's first secret.
fn with_secret(text: &str, name: &str, secret: &str) -> Result<(String, String), String> {
    match secrets(text, name)?.as_slice() {
        [] => Err(format!(
            "the key {name} has an issuer and no secrets; `latchgate key revoke` ends exchanged keys"
        )),
        [only] => {
            let changed = format!("{}, {secret:?}{}", &text[..only.end], &text[only.end..]);
            Ok((changed, id(text, only)))
        }
        all => Err(format!(
            "the key {name} has two secrets: {}; --finish removes the first, or with --keep the other one",
            ids(text, all)
        )),
    }
}

/// Returns the text of a keys file without one of the key's two secrets, and the ids of the removed and the kept
/// secret. Without `keep`, the second secret is kept.
fn with_one_secret(
    text: &str,
    name: &str,
    keep: Option<&str>,
) -> Result<(String, (String, String)), String> {
    let secrets = secrets(text, name)?;
    let [first, second] = secrets.as_slice() else {
        return Err(format!(
            "the key {name} has one secret; without --finish it gets another one"
        ));
    };
    let (first_id, second_id) = (id(text, first), id(text, second));
    match keep {
        Some(keep) if keep == first_id => Ok((
            format!("{}{}", &text[..first.end], &text[second.end..]),
            (second_id, first_id),
        )),
        Some(keep) if keep != second_id => Err(format!(
            "the key {name} has no secret {keep}, but {}",
            ids(text, &secrets)
        )),
        _ => Ok((
            format!("{}{}", &text[..first.start], &text[second.start..]),
            (first_id, second_id),
        )),
    }
}

/// The id of a secret at this position of the keys file: the part of the secret before the first colon.
fn id(text: &str, secret: &Range<usize>) -> String {
    let secret = text[secret.clone()].trim_matches(['"', '\'']);
    secret.split(':').next().unwrap_or_default().to_owned()
}

fn ids(text: &str, secrets: &[Range<usize>]) -> String {
    let ids: Vec<_> = secrets.iter().map(|secret| id(text, secret)).collect();
    ids.join(" and ")
}

/// The positions of the key's secrets in the text of a keys file.
fn secrets(text: &str, name: &str) -> Result<Vec<Range<usize>>, String> {
    // The parser's message may quote a key, so it is not shown. `change` checks the whole file afterwards.
    let document = DeTable::parse(text).map_err(|_error| "the file is not TOML".to_owned())?;
    let key = key_table(document.get_ref(), name)?;
    let secrets = array(key, "secrets").into_iter().flatten();
    Ok(secrets.map(toml::Spanned::span).collect())
}

/// The table of the key with this name.
pub(super) fn key_table<'a, 'de>(
    document: &'a DeTable<'de>,
    name: &str,
) -> Result<&'a DeTable<'de>, String> {
    let tables = array(document, "key").into_iter().flatten();
    let mut keys = tables.filter_map(|key| match key.get_ref() {
        DeValue::Table(table) => Some(table),
        _ => None,
    });
    let is_named = |table: &&DeTable<'_>| {
        let value = field(table, "name");
        matches!(value, Some(DeValue::String(text)) if text == name)
    };
    let key = keys.find(is_named);
    key.ok_or_else(|| format!("there is no key {name}"))
}

/// The position of the value of a field.
pub(super) fn field_span(table: &DeTable<'_>, name: &str) -> Option<Range<usize>> {
    let (_, value) = table.iter().find(|(key, _)| key.get_ref() == name)?;
    Some(value.span())
}

fn field<'a, 'de>(table: &'a DeTable<'de>, name: &str) -> Option<&'a DeValue<'de>> {
    let mut fields = table.iter();
    let (_, value) = fields.find(|(key, _)| key.get_ref() == name)?;
    Some(value.get_ref())
}

fn array<'a, 'de>(table: &'a DeTable<'de>, name: &str) -> Option<&'a toml::de::DeArray<'de>> {
    match field(table, name)? {
        DeValue::Array(array) => Some(array),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "# Ours.\n[[key]]\nname = \"a\"\nsecrets = ['old:sha256:1'] # of 2026\nview = [\"*\"]\n\n\
                        [[key]]\nname = 'b'\nsecrets = [\n  \"x:sha256:2\", # left\n  'y:sha256:3',\n]\n";

    fn rotated(text: &str, name: &str, keep: Option<&str>) -> (String, String, String) {
        let (text, (removed, kept)) = with_one_secret(text, name, keep).unwrap();
        (text, removed, kept)
    }

    #[test]
    fn a_secret_comes_and_the_older_one_goes_and_the_rest_stays_as_it_is() {
        let (two, old) = with_secret(FILE, "a", "new:sha256:4").unwrap();
        let line = "secrets = ['old:sha256:1', \"new:sha256:4\"] # of 2026\n";
        assert_eq!(
            two,
            FILE.replace("secrets = ['old:sha256:1'] # of 2026\n", line)
        );
        assert_eq!(old, "old");
        let newer = two.replace("'old:sha256:1', ", "");
        for keep in [None, Some("new")] {
            let expected = (newer.clone(), "old".to_owned(), "new".to_owned());
            assert_eq!(rotated(&two, "a", keep), expected);
        }
        let (one, removed, _) = rotated(FILE, "b", None);
        assert_eq!(removed, "x");
        assert!(one.ends_with("secrets = [\n  'y:sha256:3',\n]\n"), "{one}");
    }

    #[test]
    fn the_older_secret_is_kept_by_its_id_if_the_newer_one_was_lost() {
        let (two, _) = with_secret(FILE, "a", "new:sha256:4").unwrap();
        let expected = (FILE.to_owned(), "new".to_owned(), "old".to_owned());
        assert_eq!(rotated(&two, "a", Some("old")), expected);
        let (one, removed, kept) = rotated(FILE, "b", Some("x"));
        assert_eq!((removed.as_str(), kept.as_str()), ("y", "x"));
        assert!(
            one.ends_with("secrets = [\n  \"x:sha256:2\",\n]\n"),
            "{one}"
        );
    }

    #[test]
    fn what_is_not_there_is_not_rotated() {
        for (refused, reason) in [
            (with_secret(FILE, "c", "s").map(drop), "there is no key c"),
            (with_secret("", "a", "s").map(drop), "there is no key a"),
            (
                with_secret(FILE, "b", "s").map(drop),
                "the key b has two secrets: x and y; --finish removes the first",
            ),
            (
                with_secret("lgk_x", "b", "s").map(drop),
                "the file is not TOML",
            ),
            (
                with_one_secret(FILE, "a", None).map(drop),
                "the key a has one secret",
            ),
            (
                with_one_secret(FILE, "b", Some("z")).map(drop),
                "the key b has no secret z, but x and y",
            ),
        ] {
            assert!(refused.unwrap_err().starts_with(reason), "{reason}");
        }
    }
}
