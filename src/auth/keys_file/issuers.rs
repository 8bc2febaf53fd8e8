//! The parts of a keys file about ID tokens: `[[issuer]]`, and the fields of a `[[key]]` that has an issuer in place of
//! secrets.

use std::{path::PathBuf, time::Duration};

use toml::Value;

use crate::auth::{
    Permission, SignIn,
    oidc::{
        ClaimRules, ExchangeRules, Issuer, IssuerSettings, KeySource, RULE, Template,
        public_subjects, rules_hash,
    },
};

use super::{KeysFileError, Table, texts};

/// How long exchanged keys live by default, in milliseconds. Most jobs are over within an hour.
const SESSION_MS: u64 = 60 * 60 * 1_000;
/// How long sessions of people last by default, in milliseconds: a working day.
const PEOPLE_SESSION_MS: u64 = 8 * 60 * 60 * 1_000;
/// How long exchanged keys may live, in milliseconds. After a day no key renews.
const MAX_SESSION_MS: u64 = 24 * 60 * 60 * 1_000;
/// The longest audience and the longest name of a claim, in characters.
const MAX_TEXT: usize = 512;
/// How many entries of metadata a key may declare. One of the 16 entries of a lease is left to `said_owner`.
const MAX_METADATA: usize = 15;

// === impl Table ===

impl<'a> Table<'a> {
    /// Reads an `[[issuer]]` table.
    pub(super) fn issuer(&mut self, others: &[Issuer]) -> Result<Issuer, KeysFileError> {
        const URL: &str = "the URL of the issuer as in iss of its tokens: https://.., or http:// to a loopback address, \
                           without ? and #";
        const AUDIENCE: &str =
            "the audience that tokens for this gateway have, such as the URL of the gateway";
        const FILE: &str = "the path of a file";
        const CLAIMS: &str = "a list of names of claims";
        let name = self.name()?;
        let url = self
            .text("url", URL)?
            .ok_or_else(|| self.refuse("url", URL))?;
        let address = IssuerSettings::address(url).filter(|it| it.query().is_none());
        let address = address.ok_or_else(|| self.refuse("url", URL))?;
        let mut others = others.iter().map(|it| &it.settings);
        if others.any(|it| *it.name == *name || *it.url == *url) {
            return Err(self.refuse("url", "a URL, and a name, that no other issuer has"));
        }
        let audience = self
            .text("audience", AUDIENCE)?
            .ok_or_else(|| self.refuse("audience", AUDIENCE))?;
        let (pinned, ca_file) = (self.text("keys_file", FILE)?, self.text("ca_file", FILE)?);
        let source = match (pinned, ca_file) {
            (Some(_), Some(_)) => return Err(self.refuse("ca_file", "nothing beside keys_file")),
            (Some(path), None) => KeySource::Pinned(path.into()),
            (None, ca_file) => KeySource::Discovery(ca_file.map(PathBuf::from)),
        };
        let claims = self.read("tenant_claims", CLAIMS, |value| {
            texts(value).filter(|claims| claims.iter().all(|claim| !claim.is_empty()))
        })?;
        if claims.is_some() && public_subjects(&address).is_some() {
            let allowed =
                "nothing here, because the claims that tell tenants of this issuer apart are known";
            return Err(self.refuse("tenant_claims", allowed));
        }
        Ok(Issuer::new(IssuerSettings {
            name: name.into(),
            url: url.into(),
            audience: audience.into(),
            source,
            tenant_claims: claims
                .unwrap_or_default()
                .into_iter()
                .map(Into::into)
                .collect(),
        }))
    }

    /// Reads the fields of a key that has an issuer. `names`: the beginnings of lock names that have claims in them.
    pub(super) fn exchange(
        &mut self,
        names: Vec<(Permission, Template)>,
        issuers: &[Issuer],
        sign_in: Option<&SignIn>,
    ) -> Result<ExchangeRules, KeysFileError> {
        const ISSUER: &str = "the name of an [[issuer]] in this file";
        const OWNER: &str =
            "a text with claims such as {repository}; if it is a link, its host has no claims";
        let issuer = self.text("issuer", ISSUER)?;
        let issuer = issuers
            .iter()
            .map(|it| &it.settings)
            .find(|it| Some(&*it.name) == issuer);
        let issuer = issuer.ok_or_else(|| self.refuse("issuer", ISSUER))?;
        let claims = self.claims(issuer, &names)?;
        let client = self.client(issuer, sign_in)?;
        let session = self.number("session_ms", 1_000, MAX_SESSION_MS)?;
        let usual = client.map_or(SESSION_MS, |_| PEOPLE_SESSION_MS);
        let session = session.unwrap_or(usual);
        let audience = client.unwrap_or(&issuer.audience);
        let owner = self.read("owner", OWNER, |value| Template::of_text(value.as_str()?))?;
        let mut metadata = Vec::new();
        for (name, value) in self.below("metadata")? {
            let template = value.as_str().and_then(Template::of_text);
            let is_name = (1..=64).contains(&name.len()) && !name.contains(char::is_control);
            let template = template.filter(|_| is_name && metadata.len() < MAX_METADATA);
            let refused = || self.refuse("metadata", &format!("for {name:?} {OWNER}"));
            metadata.push((name.clone(), template.ok_or_else(refused)?));
        }
        Ok(ExchangeRules {
            hash: rules_hash(&issuer.url, audience, &claims),
            issuer: issuer.name.clone(),
            audience: audience.into(),
            claims,
            names,
            session: Duration::from_millis(session),
            owner,
            metadata,
            sessions_after: self.time("sessions_after")?,
        })
    }

    /// Reads the rules for claims. They must pin a tenant of an issuer that signs tokens for everybody: anybody can choose
    /// the audience of this gateway. `names`: the beginnings of lock names that have claims in them.
    fn claims(
        &mut self,
        issuer: &IssuerSettings,
        names: &[(Permission, Template)],
    ) -> Result<ClaimRules, KeysFileError> {
        const CLAIMS: &str = "a table of claims and their values: without rules, every token of the issuer would match";
        let mut rules = ClaimRules::default();
        for (name, value) in self.below("claims")? {
            let refused = || self.refuse("claims", &format!("for {name:?} {RULE}"));
            rules.add(name, value).ok_or_else(refused)?;
        }
        if rules.is_empty() {
            return Err(self.refuse("claims", CLAIMS));
        }
        let tenants = issuer.tenant_claims.as_slice();
        let address = IssuerSettings::address(&issuer.url);
        let subjects = address.and_then(|it| public_subjects(&it));
        let is_shared = subjects.is_some() || !tenants.is_empty();
        if is_shared && !rules.pin_tenant(subjects.unwrap_or_default(), tenants) {
            let allowed = "rules that name a tenant, because anybody in the world can get a token of this issuer for your \
                           audience: repository_id, repository_owner_id, project_id, namespace_id, organization_id, hd, tid, \
                           a claim in tenant_claims of the issuer, or a sub that begins with the tenant, such as repo:acme/*, \
                           project_path:acme/* or organization:acme:*. A repository can choose any other sub";
            return Err(self.refuse("claims", allowed));
        }
        if !names.is_empty() && !rules.pin_owner_by_id(tenants) {
            let allowed = "rules that name the owner by an id (repository_id, repository_owner_id, project_id, namespace_id, \
                           organization_id, tid, or a claim in tenant_claims of the issuer), because claims are parts of lock \
                           names, and another owner may get a name that was given up";
            return Err(self.refuse("claims", allowed));
        }
        let is_chosen = |claim: &str| !rules.trust(claim, tenants);
        for (permission, template) in names {
            if template.leading_claim().is_some_and(is_chosen) {
                let allowed = "names that begin with a text up to / or :, with a claim that names who runs the job, or with a \
                               claim that has one value in claims: otherwise a job could choose the beginning";
                return Err(self.refuse(permission.row().name, allowed));
            }
        }
        Ok(rules)
    }

    pub(super) fn text(
        &mut self,
        field: &'static str,
        allowed: &str,
    ) -> Result<Option<&'a str>, KeysFileError> {
        self.read(field, allowed, |value: &'a Value| {
            let is_fit = |text: &&str| {
                !text.is_empty() && text.len() <= MAX_TEXT && !text.contains(char::is_control)
            };
            value.as_str().filter(is_fit)
        })
    }

    /// The entries of a table in this table.
    fn below(
        &mut self,
        field: &'static str,
    ) -> Result<impl Iterator<Item = (&'a String, &'a Value)> + use<'a>, KeysFileError> {
        let table = self.read(field, "a table", Value::as_table)?;
        Ok(table.into_iter().flatten())
    }
}

#[cfg(test)]
mod tests;
