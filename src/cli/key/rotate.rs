//! `latchgate key rotate`: gives a key another secret.

use std::{ops::Range, path::Path};

use clap::Args;
use serde_json::json;
use toml::de::{DeTable, DeValue};

use crate::{
    auth::ApiKey,
    cli::{caller::environment::Environment, error::CliError, terminal::output},
};

use super::{change::change, list::KeysFileArgs};

/// Give a key a second secret, and later take the first one away
///
/// Prints the new secret, once: the key that is to be used from now on. Until --finish the old one lets its user in, too;
/// nothing expires by itself. Give the new one to everybody who uses the key, and then run the command with --finish.
///
/// The keys file is replaced in one step, and only by one that a gateway would take. The rest of it, its mode and its
/// owner stay as they are. Gateways read it within two seconds.
#[derive(Args)]
pub(in crate::cli) struct RotateArgs {
    /// What the key is called
    name: String,
    /// Remove the old secret: whoever uses it is not let in any more
    #[arg(long)]
    finish: bool,
    #[command(flatten)]
    file: KeysFileArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

// === impl RotateArgs ===

impl RotateArgs {
    pub(super) fn rotate(&self, environment: &Environment) -> Result<(), CliError> {
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
        change(file, |old| with_secret(old, name, &secret))?;
        let answer = if self.json {
            let (id, key) = (id.to_string(), key.expose());
            json!({"name": name, "id": id, "key": key, "secret": secret}).to_string()
        } else {
            key.expose().to_owned()
        };
        output::answer(&answer).map_err(|error| CliError::KeyNotWritten {
            error,
            name: format!("the secret {id} of {name}"),
            file: file.to_owned(),
        })?;
        if !self.json {
            output::note(&format!(
                "added the secret {id} to the key {name} in {}; it is shown only this once. The old one is valid until \
                 `latchgate key rotate {name} --finish`",
                file.display()
            ));
        }
        Ok(())
    }

    fn finish(&self, file: &Path) -> Result<(), CliError> {
        let (name, mut removed) = (&self.name, String::new());
        change(file, |old| {
            let (text, secret) = without_old_secret(old, name)?;
            removed = secret;
            Ok(text)
        })?;
        let text = if self.json {
            json!({"name": name, "removed_id": removed}).to_string()
        } else {
            format!("removed the secret {removed} of the key {name}\n")
        };
        output::answer(&text).map_err(CliError::Output)
    }
}

/// The text of a keys file with a second secret of a key.
fn with_secret(text: &str, name: &str, secret: &str) -> Result<String, String> {
    match secrets(text, name)?.as_slice() {
        [only] => Ok(format!(
            "{}, {secret:?}{}",
            &text[..only.end],
            &text[only.end..]
        )),
        _ => Err(format!(
            "the key {name} has two secrets; --finish removes the older one"
        )),
    }
}

/// The text of a keys file without the first of two secrets of a key, and the id of that secret.
fn without_old_secret(text: &str, name: &str) -> Result<(String, String), String> {
    let secrets = secrets(text, name)?;
    let [old, new] = secrets.as_slice() else {
        return Err(format!(
            "the key {name} has one secret; without --finish it gets another one"
        ));
    };
    let removed = text[old.clone()].trim_matches(['"', '\'']);
    let id = removed.split(':').next().unwrap_or_default().to_owned();
    Ok((format!("{}{}", &text[..old.start], &text[new.start..]), id))
}

/// Where the secrets of a key stand in the text of a keys file.
fn secrets(text: &str, name: &str) -> Result<Vec<Range<usize>>, String> {
    // The message of an error may repeat a key that was put in the wrong place. The file is checked as a whole, too.
    let document = DeTable::parse(text).map_err(|_error| "it is not TOML".to_owned())?;
    let tables = array(document.get_ref(), "key").into_iter().flatten();
    let mut keys = tables.filter_map(|key| match key.get_ref() {
        DeValue::Table(table) => Some(table),
        _ => None,
    });
    let is_named = |table: &&DeTable<'_>| {
        let value = field(table, "name");
        matches!(value, Some(DeValue::String(text)) if text == name)
    };
    let key = keys.find(is_named);
    let key = key.ok_or_else(|| format!("there is no key {name}"))?;
    let secrets = array(key, "secrets").into_iter().flatten();
    Ok(secrets.map(toml::Spanned::span).collect())
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

    #[test]
    fn a_secret_comes_and_the_older_one_goes_and_the_rest_stays_as_it_is() {
        let two = with_secret(FILE, "a", "new:sha256:4").unwrap();
        let line = "secrets = ['old:sha256:1', \"new:sha256:4\"] # of 2026\n";
        assert_eq!(
            two,
            FILE.replace("secrets = ['old:sha256:1'] # of 2026\n", line)
        );
        let (one, removed) = without_old_secret(&two, "a").unwrap();
        assert_eq!(removed, "old");
        assert_eq!(one, two.replace("'old:sha256:1', ", ""));
        let (one, removed) = without_old_secret(FILE, "b").unwrap();
        assert_eq!(removed, "x");
        assert!(one.ends_with("secrets = [\n  'y:sha256:3',\n]\n"), "{one}");
    }

    #[test]
    fn what_is_not_there_is_not_rotated() {
        for (refused, reason) in [
            (with_secret(FILE, "c", "s"), "there is no key c"),
            (with_secret("", "a", "s"), "there is no key a"),
            (with_secret(FILE, "b", "s"), "the key b has two secrets"),
            (with_secret("lgk_x", "b", "s"), "it is not TOML"),
            (
                without_old_secret(FILE, "a").map(|(text, _)| text),
                "the key a has one secret",
            ),
        ] {
            assert!(refused.unwrap_err().starts_with(reason), "{reason}");
        }
    }
}
