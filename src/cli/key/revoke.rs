//! `latchgate key revoke`: ends the keys for which ID tokens were exchanged.

use std::time::SystemTime;

use clap::Args;
use toml::de::DeTable;

use crate::{
    cli::{caller::environment::Environment, error::CliError, terminal::output},
    clock::{Clock, SystemClock, rfc3339},
};

use super::{
    change::change,
    list::KeysFileArgs,
    rotate::{field_span, key_table},
};

/// End all keys that programs have got for ID tokens by this API key
///
/// Sets `sessions_after` of the key to now. An ID token that was issued before is not exchanged any more, so a running
/// job with one token loses its key. The job can exchange a new one: remove the key, or change its claims, to prevent that.
/// Leases stay until they end, and can be released with their tokens.
#[derive(Args)]
pub(in crate::cli) struct RevokeArgs {
    /// The name of the key
    #[arg(value_name = "NAME")]
    name: String,
    #[command(flatten)]
    file: KeysFileArgs,
}

// === impl RevokeArgs ===

impl RevokeArgs {
    pub(in crate::cli) fn revoke(&self, environment: &Environment) -> Result<(), CliError> {
        let file = self.file.find(environment)?;
        let now = SystemClock.wall();
        change(file.path(), |text| revoked(text, &self.name, now))?;
        let (name, time) = (&self.name, rfc3339(Some(now)));
        output::answer(&format!(
            "keys that were exchanged by the key {name} before {time} end as soon as the gateways have read {}\n",
            file.path().display()
        ))
    }
}

/// The text of a keys file in which this key has `sessions_after`.
fn revoked(text: &str, name: &str, now: SystemTime) -> Result<String, String> {
    // The parser's message may quote a key, so it is not shown. `change` checks the whole file afterwards.
    let document = DeTable::parse(text).map_err(|_error| "the file is not TOML".to_owned())?;
    let key = key_table(document.get_ref(), name)?;
    let Some(issuer) = field_span(key, "issuer") else {
        return Err(format!(
            "the key {name} has secrets and no issuer; `latchgate key rotate` replaces a secret"
        ));
    };
    let time = rfc3339(Some(now)).to_string();
    let (replaced, line) = if let Some(old) = field_span(key, "sessions_after") {
        (old, time)
    } else {
        let line = text[..issuer.start].rfind('\n').map_or(0, |at| at + 1);
        (line..line, format!("sessions_after = {time}\n"))
    };
    Ok(format!(
        "{}{line}{}",
        &text[..replaced.start],
        &text[replaced.end..]
    ))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_time_is_set_or_replaced_and_the_rest_stays_as_it_is() {
        let text = "# Ours.\n[[key]]\nname = 'a'\nissuer = 'i' # of CI\n[key.claims]\nsub = 'x'\n[[key]]\nname = 'b'\n";
        let now = SystemTime::UNIX_EPOCH + Duration::from_hours(498_660);
        let one = revoked(text, "a", now).unwrap();
        let line = "sessions_after = 2026-11-20T12:00:00.000Z\nissuer = 'i' # of CI\n";
        assert_eq!(one, text.replace("issuer = 'i' # of CI\n", line));
        let later = revoked(&one, "a", now + Duration::from_secs(1)).unwrap();
        assert_eq!(later, one.replace("12:00:00.000Z", "12:00:01.000Z"));
        assert!(
            revoked(text, "b", now)
                .unwrap_err()
                .contains("has secrets and no issuer")
        );
        assert_eq!(revoked(text, "c", now).unwrap_err(), "there is no key c");
    }
}
