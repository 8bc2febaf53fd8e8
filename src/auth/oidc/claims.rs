//! Which tokens of an issuer an API key is for, and whether its rules keep the rest of the world out.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;
use toml::Value as Toml;
use url::Url;

use super::Claims;

/// The rules of an API key for the claims of a token: the values that each claim may have. A token must meet all of them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ClaimRules(BTreeMap<String, Vec<Expected>>);

/// A value that a claim may have. Different values have different texts as JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
enum Expected {
    Text(Box<str>),
    Beginning {
        /// The beginning of a text, up to and with a separator.
        begins: Box<str>,
    },
    Number(i64),
    Flag(bool),
}

/// What a rule in a keys file may be.
pub(in crate::auth) const RULE: &str =
    "a text, a whole number, true or false, or a list of them; a text may end in * after / or :";

/// The claims that name a tenant of a public issuer by an id, which nobody else can get.
const TENANT_IDS: [&str; 6] = [
    "repository_id",
    "repository_owner_id",
    "project_id",
    "namespace_id",
    "organization_id",
    "tid",
];
/// The claim that names a tenant of Google by its domain.
const DOMAIN: &str = "hd";
const SUBJECT: &str = "sub";
const EMAIL: &str = "email";
const EMAIL_VERIFIED: &str = "email_verified";

/// The hosts of issuers that sign tokens for everybody in the world, each with the audience that its user chooses, and how
/// a `sub` begins whose next part is a tenant. A tenant may choose what else its `sub` is: of every other beginning, and of
/// every other text, another tenant can have the same.
const PUBLIC_HOSTS: [(&str, &[&str]); 7] = [
    (
        "token.actions.githubusercontent.com",
        &["repo:", "repository_id:", "repository_owner_id:"],
    ),
    ("gitlab.com", &["project_path:"]),
    ("agent.buildkite.com", &["organization:"]),
    ("accounts.google.com", WHOLE_SUBJECT),
    ("login.microsoftonline.com", WHOLE_SUBJECT),
    ("login.microsoftonline.us", WHOLE_SUBJECT),
    ("sts.windows.net", WHOLE_SUBJECT),
];
/// The whole `sub` is an id that the issuer has chosen.
const WHOLE_SUBJECT: &[&str] = &[""];

/// The claims that name who runs a job, and that the job cannot choose.
const IDENTITIES: [&str; 7] = [
    "repository",
    "repository_owner",
    "project_path",
    "namespace_path",
    "organization_slug",
    "pipeline_slug",
    "pipeline_id",
];

// === impl ClaimRules ===

impl ClaimRules {
    /// Adds a rule, as a keys file has it. Fails if the value is no rule.
    pub(in crate::auth) fn add(&mut self, claim: &str, value: &Toml) -> Option<()> {
        let expected = match value {
            Toml::Array(list) if !list.is_empty() => {
                list.iter().map(Expected::read).collect::<Option<_>>()?
            }
            one => vec![Expected::read(one)?],
        };
        self.0.insert(claim.to_owned(), expected);
        Some(())
    }

    /// Whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether there is a rule for this claim.
    pub(in crate::auth) fn names(&self, claim: &str) -> bool {
        self.0.contains_key(claim)
    }

    /// Whether a token has claims for this key; otherwise the first claim that is wrong. `uses_email` says that a
    /// template uses the address, too.
    pub fn check(&self, claims: &Claims, uses_email: bool) -> Result<(), &str> {
        let needs_verified = uses_email || self.names(EMAIL);
        if needs_verified && claims.get(EMAIL_VERIFIED) != Some(&Value::Bool(true)) {
            return Err(EMAIL_VERIFIED);
        }
        let meets = |(claim, expected): &(&String, &Vec<Expected>)| {
            let is_expected = |value: &Value| expected.iter().any(|it| it.is_met_by(value));
            match claims.get(claim.as_str()) {
                Some(Value::Array(list)) => list.iter().any(is_expected),
                Some(one) => is_expected(one),
                None => false,
            }
        };
        self.0
            .iter()
            .find(|rule| !meets(rule))
            .map_or(Ok(()), |(claim, _)| Err(claim))
    }

    /// Whether the rules admit one tenant of the issuer, or a few, and not everybody who can get a token.
    /// `subjects` are the beginnings of a `sub` of one tenant, and `tenant_claims` those that the operator lists for the
    /// issuer.
    pub(in crate::auth) fn pin_tenant(
        &self,
        subjects: &[&str],
        tenant_claims: &[Box<str>],
    ) -> bool {
        let names_tenant = |it: &Expected| subjects.iter().any(|begin| it.names_tenant(begin));
        self.pin_owner_by_id(tenant_claims)
            || tenant_claims.is_empty() && self.pins(DOMAIN, Expected::is_whole)
            || self.pins(SUBJECT, names_tenant)
    }

    /// Whether a claim is of one value by these rules, or names who runs a job, so that no job can choose it.
    pub(in crate::auth) fn trust(&self, claim: &str, tenant_claims: &[Box<str>]) -> bool {
        IDENTITIES.contains(&claim)
            || tenant_claims.is_empty() && TENANT_IDS.contains(&claim)
            || tenant_claims.iter().any(|it| **it == *claim)
            || self.pins(claim, Expected::is_whole)
    }

    /// Whether the rules pin the tenant by an id. A name can be given up, and taken by somebody else.
    pub(in crate::auth) fn pin_owner_by_id(&self, tenant_claims: &[Box<str>]) -> bool {
        let is_pin = |claim: &str| self.pins(claim, Expected::is_whole);
        // Whoever lists the claims that tell tenants apart says that no other claim does.
        match tenant_claims {
            [] => TENANT_IDS.into_iter().any(is_pin),
            listed => listed.iter().any(|claim| is_pin(claim)),
        }
    }

    fn pins(&self, claim: &str, is_pin: impl Fn(&Expected) -> bool) -> bool {
        self.0
            .get(claim)
            .is_some_and(|expected| expected.iter().all(is_pin))
    }
}

/// The beginnings of a `sub` of one tenant, if an issuer signs tokens for everybody in the world.
pub(in crate::auth) fn public_subjects(issuer: &Url) -> Option<&'static [&'static str]> {
    let name = issuer.host_str()?;
    let public = PUBLIC_HOSTS.iter().find(|(host, _)| *host == name);
    public.map(|(_, subjects)| *subjects)
}

// === impl Expected ===

impl Expected {
    fn read(value: &Toml) -> Option<Self> {
        Some(match value {
            Toml::String(text) => match text.strip_suffix('*') {
                Some(begin) if begin.ends_with(SEPARATORS) && !begin.contains('*') => {
                    Self::Beginning {
                        begins: begin.into(),
                    }
                }
                None if !text.is_empty() && !text.contains('*') => Self::Text(text.as_str().into()),
                _ => return None,
            },
            Toml::Integer(number) => Self::Number(*number),
            Toml::Boolean(flag) => Self::Flag(*flag),
            _ => return None,
        })
    }

    /// Text equals text and number equals number: no value is read as another kind.
    fn is_met_by(&self, value: &Value) -> bool {
        match (self, value) {
            (Self::Text(text), Value::String(value)) => **text == *value,
            (Self::Beginning { begins }, Value::String(value)) => value.starts_with(&**begins),
            (Self::Number(number), Value::Number(value)) => value.as_i64() == Some(*number),
            (Self::Flag(flag), Value::Bool(value)) => flag == value,
            _ => false,
        }
    }

    fn is_whole(&self) -> bool {
        matches!(self, Self::Text(_) | Self::Number(_))
    }

    /// Whether a subject with this value is of one tenant, whose name stands behind `begin`: `repo:acme/*` is, and `repo:*`
    /// is not.
    fn names_tenant(&self, begin: &str) -> bool {
        match self {
            Self::Text(text) => text
                .strip_prefix(begin)
                .is_some_and(|rest| !rest.is_empty()),
            Self::Beginning { begins } => {
                let rest = begins.strip_prefix(begin).filter(|_| !begin.is_empty());
                rest.is_some_and(|rest| !rest.starts_with(SEPARATORS) && !rest.is_empty())
            }
            Self::Number(_) | Self::Flag(_) => false,
        }
    }
}

/// The characters after which a text may end in `*`. Without one, `repo:acme*` would admit `repo:acme-evil/..`.
const SEPARATORS: [char; 2] = ['/', ':'];

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rules(text: &str) -> Option<ClaimRules> {
        let table: toml::Table = toml::from_str(text).unwrap();
        let mut rules = ClaimRules::default();
        table
            .iter()
            .try_for_each(|(claim, value)| rules.add(claim, value))?;
        Some(rules)
    }

    fn meets(rule: &str, claims: Value) -> bool {
        let Value::Object(claims) = claims else {
            panic!("no claims")
        };
        rules(rule).unwrap().check(&claims, false).is_ok()
    }

    #[test]
    fn a_value_equals_only_a_value_of_its_own_kind() {
        assert!(meets("a = 'x'", json!({"a": "x"})));
        assert!(meets("a = 1", json!({"a": 1})));
        assert!(meets("a = true", json!({"a": true})));
        for (rule, claims) in [
            ("a = 'x'", json!({"a": "X"})),
            ("a = 'x'", json!({"a": "x "})),
            ("a = 'x'", json!({"b": "x"})),
            ("a = 'x'", json!({"a": null})),
            ("a = 'x'", json!({"a": {"x": "x"}})),
            ("a = '1'", json!({"a": 1})),
            ("a = 1", json!({"a": "1"})),
            ("a = 1", json!({"a": 1.5})),
            ("a = true", json!({"a": "true"})),
            ("a = true", json!({"a": 1})),
            ("a = true", json!({"a": false})),
            ("a = 'x'\nb = 'y'", json!({"a": "x", "b": "z"})),
        ] {
            assert!(!meets(rule, claims.clone()), "{rule} {claims}");
        }
    }

    #[test]
    fn a_list_in_the_rule_or_in_the_token_is_met_by_one_element() {
        assert!(meets("a = ['x', 'y']", json!({"a": "y"})));
        assert!(meets("a = 'x'", json!({"a": ["y", "x"]})));
        assert!(!meets("a = 'x'", json!({"a": [["x"]]})));
        assert!(!meets("a = 'x'", json!({"a": []})));
    }

    #[test]
    fn a_star_stands_at_the_end_and_behind_a_separator() {
        assert!(meets("a = 'refs/heads/*'", json!({"a": "refs/heads/x"})));
        assert!(!meets("a = 'refs/heads/*'", json!({"a": "refs/headsx"})));
        for bad in [
            "'*'", "'acme*'", "'a/*/b'", "'a/**'", "''", "[]", "['']", "1.5", "[['a']]", "{b = 1}",
        ] {
            assert_eq!(rules(&format!("a = {bad}")), None, "{bad}");
        }
    }

    #[test]
    fn claims_are_of_the_top_level_only() {
        assert!(!meets("'a.b' = 'x'", json!({"a": {"b": "x"}})));
    }

    #[test]
    fn an_address_counts_only_if_the_issuer_has_verified_it() {
        let rule = "email = 'a@b'";
        assert!(meets(rule, json!({"email": "a@b", "email_verified": true})));
        for verified in [json!(false), json!("true"), json!(1), json!(null)] {
            assert!(!meets(
                rule,
                json!({"email": "a@b", "email_verified": verified})
            ));
        }
        let claims = json!({"email": "a@b", "a": "x"})
            .as_object()
            .unwrap()
            .clone();
        let rules = rules("a = 'x'").unwrap();
        assert_eq!(rules.check(&claims, true), Err("email_verified"));
        assert_eq!(rules.check(&claims, false), Ok(()));
    }

    #[test]
    fn a_tenant_is_pinned_by_an_id_a_domain_or_a_subject_up_to_its_name() {
        for (rule, pins) in [
            ("repository_id = '1'", true),
            ("repository_owner_id = ['1', '2']", true),
            ("project_id = 1", true),
            ("namespace_id = '1'", true),
            ("organization_id = '1'", true),
            ("hd = 'acme.com'", true),
            ("tid = 'x'", true),
            ("sub = 'repo:acme/web:ref:refs/heads/main'", true),
            ("sub = 'repo:acme/*'", true),
            ("sub = 'repo:*'", false),
            ("sub = ['repo:acme/*', 'repo:*']", false),
            ("sub = '::*'", false),
            ("sub = 'repo:/*'", false),
            ("sub = 'repo:acme@7/*'", true),
            ("sub = 'repository_owner_id:1'", true),
            // Each repository chooses which claims its `sub` is made of.
            ("sub = 'environment:production'", false),
            ("sub = 'ref:refs/heads/main'", false),
            ("sub = 'job_workflow_ref:acme/wf/*'", false),
            ("sub = ['repo:acme/*', 'environment:production']", false),
            ("repository = 'acme/web'", false),
            ("repository_id = true", false),
            ("repository_id = 'a/*'", false),
            ("event_name = 'push'", false),
            ("account = '7'", false),
        ] {
            let github = PUBLIC_HOSTS[0].1;
            let rules = rules(rule).unwrap();
            assert_eq!(rules.pin_tenant(github, &[]), pins, "{rule}");
        }
        let own = rules("account = '7'").unwrap();
        assert!(own.pin_tenant(&[], &["account".into()]));
        let whole = |rule| rules(rule).unwrap().pin_tenant(WHOLE_SUBJECT, &[]);
        assert!(whole("sub = '1234'") && !whole("sub = '12/*'"));
        let by_id = |rule| rules(rule).unwrap().pin_owner_by_id(&[]);
        assert!(by_id("repository_id = '1'"));
        assert!(!by_id("sub = 'repo:acme/*'") && !by_id("hd = 'acme.com'"));
    }

    #[test]
    fn equal_rules_have_one_text_and_others_another() {
        let text = |rule| json!(rules(rule).unwrap()).to_string();
        assert_eq!(text("a = 'x'\nb = 1"), text("b = 1\na = ['x']"));
        let texts = [
            "a = 'x/'",
            "a = 'x/*'",
            "a = '1'",
            "a = 1",
            "a = 'true'",
            "a = true",
            "b = 1",
            "a = ['1', '2']",
        ];
        for (at, one) in texts.iter().enumerate() {
            for other in &texts[..at] {
                assert_ne!(text(one), text(other));
            }
        }
    }

    #[test]
    fn no_job_chooses_a_claim_that_is_trusted() {
        let rules = rules("environment = 'production'\nref = 'refs/heads/*'").unwrap();
        let trusted = |claim: &str| rules.trust(claim, &["account".into()]);
        for claim in ["repository", "environment", "account"] {
            assert!(trusted(claim), "{claim}");
        }
        for claim in ["workflow", "ref", "sub", "run_id", "project_id"] {
            assert!(!trusted(claim), "{claim}");
        }
        assert!(rules.trust("project_id", &[]));
    }

    #[test]
    fn where_an_operator_lists_what_tells_tenants_apart_nothing_else_does() {
        let listed = ["account".into()];
        for text in ["project_id = '20'", "hd = 'example.com'", "tid = 'x'"] {
            let rules = rules(text).unwrap();
            assert!(rules.pin_tenant(&[], &[]), "{text}");
            assert!(!rules.pin_tenant(&[], &listed), "{text}");
            assert!(!rules.pin_owner_by_id(&listed), "{text}");
        }
        assert!(rules("account = '7'").unwrap().pin_owner_by_id(&listed));
    }

    #[test]
    fn the_issuers_of_the_whole_world_are_known() {
        let public = |url: &str| public_subjects(&Url::parse(url).unwrap()).is_some();
        for url in [
            "https://token.actions.githubusercontent.com",
            "https://token.actions.githubusercontent.com/octocat-inc",
            "https://gitlab.com",
            "https://GITLAB.com/",
            "https://agent.buildkite.com",
            "https://accounts.google.com",
            "https://login.microsoftonline.com/x/v2.0",
            "https://sts.windows.net/x/",
        ] {
            assert!(public(url), "{url}");
        }
        assert!(!public("https://gitlab.example.com"));
    }
}
