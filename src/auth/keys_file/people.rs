//! The parts of a keys file about people: `[sign_in]`, and `for = "people"` of a `[[key]]`.

use std::sync::OnceLock;

use toml::Value;

use crate::auth::{
    SignIn,
    oidc::{Issuer, IssuerSettings, KeySource},
};

use super::{KeysFileError, Table, texts};

/// The scopes that are asked for by default. `openid` alone makes no name.
const SCOPES: &str = "openid email profile";

// === impl Table ===

impl Table<'_> {
    /// Reads the `[sign_in]` table.
    pub(super) fn sign_in(&mut self, issuers: &[Issuer]) -> Result<SignIn, KeysFileError> {
        const ISSUER: &str = "the name of an [[issuer]] in this file";
        const CLIENT: &str =
            "the id of the client at the issuer, which is not the audience of the issuer";
        const FILE: &str = "the path of a file with the secret of the client";
        const URL: &str = "the address of the gateway as browsers see it: https://.., or http:// to a loopback address, \
                           without ? and #";
        const SCOPES_ALLOWED: &str =
            "a list of scopes with \"openid\", such as [\"openid\", \"email\"]";
        let name = self.text("issuer", ISSUER)?;
        let mut named = issuers.iter().map(|it| &it.settings);
        let issuer = named.find(|it| Some(&*it.name) == name);
        let issuer = issuer.ok_or_else(|| self.refuse("issuer", ISSUER))?;
        if matches!(issuer.source, KeySource::Pinned(_)) {
            let allowed = "the name of an [[issuer]] without keys_file: the gateway must reach it";
            return Err(self.refuse("issuer", allowed));
        }
        let client = self.text("client_id", CLIENT)?;
        // Otherwise a token for a program would be one for people, and the other way round.
        let client = client.filter(|it| **it != *issuer.audience);
        let client = client.ok_or_else(|| self.refuse("client_id", CLIENT))?;
        let secret_file = self.text("client_secret_file", FILE)?;
        let secret_file = secret_file.ok_or_else(|| self.refuse("client_secret_file", FILE))?;
        let url = self.text("url", URL)?.map(|url| url.trim_end_matches('/'));
        let url =
            url.filter(|url| IssuerSettings::address(url).is_some_and(|it| it.query().is_none()));
        let url = url.ok_or_else(|| self.refuse("url", URL))?;
        let scopes = self.read("scopes", SCOPES_ALLOWED, |value| {
            let scopes = texts(value)?;
            let is_scope =
                |scope: &&str| !scope.is_empty() && scope.chars().all(|c| c.is_ascii_graphic());
            let is_fit = scopes.contains(&"openid") && scopes.iter().all(is_scope);
            is_fit.then(|| scopes.join(" "))
        })?;
        let shown_claim = self.text("shown_claim", "the name of a claim")?;
        let mut flag = |field| self.read(field, "true or false", Value::as_bool);
        let (has_key_form, signs_out_there) = (flag("key_form")?, flag("issuer_sign_out")?);
        Ok(SignIn {
            issuer: issuer.name.clone(),
            client_id: client.into(),
            secret_file: secret_file.into(),
            secret: OnceLock::new(),
            url: url.into(),
            scopes: scopes.unwrap_or_else(|| SCOPES.to_owned()).into(),
            shown_claim: shown_claim.map(Into::into),
            has_key_form: has_key_form.unwrap_or(true),
            signs_out_there: signs_out_there.unwrap_or(true),
        })
    }

    /// The id of the client with which people sign in, if the key is for people.
    pub(super) fn client<'b>(
        &mut self,
        issuer: &IssuerSettings,
        sign_in: Option<&'b SignIn>,
    ) -> Result<Option<&'b str>, KeysFileError> {
        const FOR: &str =
            "\"people\", if [sign_in] has the issuer of the key, or nothing for programs";
        let for_people = self.read("for", FOR, |value| {
            value.as_str().filter(|text| *text == "people")
        })?;
        if for_people.is_none() {
            return Ok(None);
        }
        let sign_in = sign_in.filter(|it| it.issuer == issuer.name);
        let client = sign_in.map(|it| &*it.client_id);
        client.map(Some).ok_or_else(|| self.refuse("for", FOR))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::auth::{KeyRing, KeysFile};

    const ISSUER: &str =
        "[[issuer]]\nname = 'i'\nurl = 'https://sso.example'\naudience = 'https://locks'\n";
    const SIGN_IN: &str = "[sign_in]\nissuer = 'i'\nclient_id = 'page'\nclient_secret_file = '/nowhere/secret'\n\
                           url = 'https://locks.example/gate/'\n";
    const KEY: &str =
        "[[key]]\nname = 'ops'\nissuer = 'i'\nfor = 'people'\nclaims = { groups = 'ops' }\n";

    fn read(text: &str) -> Result<KeyRing, String> {
        let read = KeysFile::new("keys.toml").parse(text);
        read.map_err(|error| error.to_string())
    }

    #[test]
    fn people_have_keys_of_their_own() {
        let programs = KEY.replace("ops", "ci").replace("for = 'people'\n", "");
        let ring = read(&format!("{ISSUER}{SIGN_IN}{KEY}{programs}")).unwrap();
        let sign_in = ring.sign_in().unwrap();
        assert_eq!(
            (&*sign_in.url, &*sign_in.client_id),
            ("https://locks.example/gate", "page")
        );
        assert!(sign_in.has_key_form && sign_in.signs_out_there && sign_in.is_secure());
        let rules = |at: usize| ring.keys()[at].exchange.as_deref().unwrap();
        assert_eq!(
            [&*rules(0).audience, &rules(1).audience],
            ["page", "https://locks"]
        );
        assert_eq!(rules(0).session, Duration::from_hours(8));
        assert_ne!(rules(0).hash, rules(1).hash);
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("keys.toml");
        std::fs::write(&path, format!("{ISSUER}{SIGN_IN}{KEY}")).unwrap();
        let error = KeysFile::new(&path).read().unwrap_err().to_string();
        assert!(
            error.contains("client_secret_file of [sign_in]: cannot use /nowhere/secret"),
            "{error}"
        );
        // A command that only looks at the keys needs no secret.
        assert!(KeysFile::new(&path).look().is_ok());
    }

    #[test]
    fn what_is_missing_or_would_be_unsafe_is_named() {
        let refused = |from: &str, to: &str| {
            let text = format!("{ISSUER}{SIGN_IN}{KEY}");
            assert!(text.contains(from), "{from}");
            read(&text.replace(from, to)).unwrap_err()
        };
        for (from, to, named) in [
            (
                "issuer = 'i'\nclient",
                "issuer = 'x'\nclient",
                "issuer of [sign_in]",
            ),
            ("'page'", "'https://locks'", "client_id of [sign_in]"),
            ("client_id = 'page'\n", "", "client_id of [sign_in]"),
            (
                "client_secret_file = '/nowhere/secret'\n",
                "",
                "client_secret_file of [sign_in]",
            ),
            (
                "https://locks.example/gate/",
                "http://locks.example",
                "url of [sign_in]",
            ),
            (
                "https://locks.example/gate/",
                "https://locks.example?x",
                "url of [sign_in]",
            ),
            (
                "client_id",
                "scopes = ['email']\nclient_id",
                "scopes of [sign_in]",
            ),
            (
                "client_id",
                "scopes = ['openid', 'a b']\nclient_id",
                "scopes of [sign_in]",
            ),
            (
                "client_id",
                "key_form = 1\nclient_id",
                "key_form of [sign_in]",
            ),
            (
                "client_id",
                "clint = 1\nclient_id",
                "there is no clint of [sign_in]",
            ),
            ("[sign_in]", "[[sign_in]]", "[sign_in], a table for people"),
            ("[sign_in]", "[sign_on]", "[sign_in], a table for people"),
            ("'people'", "'all'", "for of the key \"ops\""),
            (SIGN_IN, "", "for of the key \"ops\""),
            (
                "audience = 'https://locks'\n",
                "audience = 'a'\nkeys_file = '/x'\n",
                "without keys_file",
            ),
        ] {
            let error = refused(from, to);
            assert!(error.contains(named), "{from} {to} {error}");
        }
    }
}
