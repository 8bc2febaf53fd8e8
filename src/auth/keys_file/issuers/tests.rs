//! What a keys file may say about issuers and ID tokens, and the error messages for what it may not.

use std::time::Duration;

use crate::auth::{KeysFile, Permission};
use crate::config::AuthConfig;

const ISSUER: &str =
    "[[issuer]]\nname = 'i'\nurl = 'https://issuer.example'\naudience = 'https://locks'\n";
const GITHUB: &str = "[[issuer]]\nname = 'i'\nurl = 'https://token.actions.githubusercontent.com'\n\
                      audience = 'https://locks'\n";

fn read(text: &str) -> Result<crate::auth::KeyRing, String> {
    KeysFile::new("keys.toml")
        .parse(text)
        .map_err(|error| error.to_string())
}

/// The error message for a key of this issuer with these lines.
#[track_caller]
fn refused(issuer: &str, lines: &str) -> String {
    read(&format!(
        "{issuer}[[key]]\nname = 'k'\nissuer = 'i'\n{lines}\n"
    ))
    .unwrap_err()
}

#[test]
fn a_key_says_which_tokens_it_is_for_and_what_they_get() {
    let ring = read(&format!(
        "{GITHUB}[[key]]\nname = 'ci-web'\nissuer = 'i'\n\
         claims = {{ repository_id = '123456', event_name = ['push', 'workflow_dispatch'] }}\n\
         acquire = ['deploy:web', '{{repository}}/']\nview = ['*']\nsession_ms = 60_000\n\
         owner = '{{repository}} #{{run_number}}'\n\
         metadata = {{ run = 'https://github.com/{{repository}}/actions/runs/{{run_id}}' }}\n\
         sessions_after = 2026-01-01T00:00:00Z\nmax_leases = 2\n"
    ));
    let ring = ring.unwrap();
    let key = &ring.keys()[0];
    let rules = key.exchange.as_deref().unwrap();
    assert_eq!(
        (&*rules.issuer, rules.session),
        ("i", Duration::from_mins(1))
    );
    assert!(key.secrets.is_empty() && rules.sessions_after.is_some());
    let templates: Vec<_> = rules.templates_of(Permission::Acquire).collect();
    assert_eq!(templates, ["{repository}/"]);
    let names: Vec<_> = key.permissions.names(Permission::Acquire).iter().collect();
    assert_eq!(names, ["deploy:web"]);
    assert_eq!(&*ring.issuers()[0].settings.name, "i");
    let bare = read(&format!(
        "{ISSUER}[[key]]\nname = 'k'\nissuer = 'i'\nclaims = {{ sub = 'x' }}"
    ));
    let hour = bare.unwrap().keys()[0].exchange.as_deref().unwrap().session;
    assert_eq!(hour, Duration::from_hours(1));
}

#[test]
fn a_public_issuer_needs_a_tenant() {
    let tenant = "claims = { event_name = 'push' }";
    assert!(
        refused(GITHUB, tenant).contains("anybody in the world"),
        "{}",
        refused(GITHUB, tenant)
    );
    for rule in ["sub = 'repo:*'", "repository = 'acme/web'"] {
        assert!(
            refused(GITHUB, &format!("claims = {{ {rule} }}")).contains("anybody in the world")
        );
    }
    let own = format!("{ISSUER}tenant_claims = ['account']\n");
    assert!(refused(&own, tenant).contains("anybody in the world"));
    let with = |issuer: &str, rule: &str| {
        read(&format!(
            "{issuer}[[key]]\nname = 'k'\nissuer = 'i'\nclaims = {{ {rule} }}\n"
        ))
        .is_ok()
    };
    assert!(with(GITHUB, "repository_owner_id = '1'") && with(&own, "account = 7"));
    // Each repository can have such a subject.
    assert!(!with(GITHUB, "sub = 'environment:production'"));
    let weak = format!("{GITHUB}tenant_claims = ['event_name']\n");
    let message = refused(&weak, tenant);
    assert!(
        message.starts_with("tenant_claims of the issuer \"i\" is "),
        "{message}"
    );
    assert!(with(GITHUB, "sub = 'repo:acme/*'") && with(ISSUER, "event_name = 'push'"));
}

#[test]
fn claims_in_lock_names_need_an_owner_by_id_and_a_separator_and_never_break() {
    let by_name = "claims = { sub = 'repo:acme/*' }\nacquire = ['{repository}/']";
    assert!(refused(GITHUB, by_name).contains("name the owner by an id"));
    for line in [
        "acquire = ['{repository}']",
        "acquire = ['{repository}x/']",
        "view = ['{repository}{b}/']",
    ] {
        let text = format!("claims = {{ repository_id = '1' }}\n{line}");
        assert!(
            refused(GITHUB, &text).contains("the beginning of a lock name"),
            "{line}"
        );
    }
    for name in ["{environment}/", "{workflow}:", "x{environment}/"] {
        let text = format!("claims = {{ repository_id = '1' }}\nacquire = ['{name}']");
        let message = refused(GITHUB, &text);
        assert!(
            message.contains("a job could choose the beginning"),
            "{message}"
        );
    }
    for (rule, name) in [
        ("environment = 'a'", "{environment}/"),
        ("event_name = 'push'", "ci/{environment}/"),
        ("event_name = 'push'", "{repository}/{environment}/"),
    ] {
        read(&format!(
            "{GITHUB}[[key]]\nname = 'k'\nissuer = 'i'\nclaims = {{ repository_id = '1', {rule} }}\n\
             acquire = ['{name}']"
        ))
        .unwrap();
    }
    for permission in ["break", "order", "check"] {
        let text =
            format!("claims = {{ repository_id = '1' }}\n{permission} = ['{{repository}}/']");
        assert!(refused(GITHUB, &text).starts_with(&format!("{permission} of the key")));
    }
    for permission in ["acquire", "view", "reserve"] {
        let text = format!(
            "{GITHUB}[[key]]\nname = 'k'\nissuer = 'i'\nclaims = {{ repository_id = '1' }}\n\
             {permission} = ['{{repository}}/']"
        );
        read(&text).unwrap();
    }
}

#[test]
fn a_wrong_value_is_named_with_its_line() {
    let claims = "claims = { sub = 'x' }";
    for (lines, begins) in [
        ("", "claims of the key \"k\" is missing (line 6 "),
        ("claims = {}", "claims of the key \"k\" is a table (line 8 "),
        (
            "claims = 'sub'",
            "claims of the key \"k\" is \"sub\" (line 8 ",
        ),
        (
            "claims = { sub = '*' }",
            "claims.sub of the key \"k\" is \"*\" (line 8 ",
        ),
        (
            "claims = { sub = 1.5 }",
            "claims.sub of the key \"k\" is 1.5 (line 8 ",
        ),
        (
            "claims = { a.b = 'x' }",
            "claims.a.b of the key \"k\" is \"x\" (line 8 ",
        ),
        (
            &format!("{claims}\nsession_ms = 86_400_001"),
            "session_ms of the key \"k\" is 86400001 (line 9 ",
        ),
        (
            &format!("{claims}\nowner = '{{a'"),
            "owner of the key \"k\" is \"{a\" (line 9 ",
        ),
        (
            &format!("{claims}\nmetadata = {{ run = 'https://{{x}}/' }}"),
            "metadata.run of the key \"k\" is ",
        ),
        (
            &format!("{claims}\nmetadata = 'x'"),
            "metadata of the key \"k\" is \"x\" (line 9 ",
        ),
        (
            &format!("{claims}\nsessions_after = 5"),
            "sessions_after of the key \"k\" is 5 (line 9 ",
        ),
        (
            &format!(
                "{claims}\nsecrets = ['abcdefghij:sha256:{}']",
                "0".repeat(64)
            ),
            "issuer of the key \"k\" is \"i\"",
        ),
    ] {
        let message = refused(ISSUER, lines);
        assert!(message.starts_with(begins), "{lines}: {message}");
    }
    let message = read(&format!(
        "{ISSUER}[[key]]\nname = 'k'\nissuer = 'j'\n{claims}"
    ))
    .unwrap_err();
    assert!(
        message.contains("allowed is the name of an [[issuer]]"),
        "{message}"
    );
    let message = read(&format!("{ISSUER}[[key]]\nname = 'k'\nowner = 'x'")).unwrap_err();
    assert!(
        message.starts_with("secrets of the key \"k\" is missing"),
        "{message}"
    );
}

#[test]
fn an_issuer_is_reached_over_https_or_on_this_machine() {
    let with = |line: &str| {
        let key = "[[key]]\nname = 'k'\nissuer = 'i'\nclaims = { sub = 'x' }\n";
        read(&format!(
            "[[issuer]]\nname = 'i'\naudience = 'a'\n{line}\n{key}"
        ))
    };
    for url in [
        "https://issuer.example/realms/a",
        "http://127.0.0.1:8080",
        "http://localhost/x",
        "http://[::1]:1",
    ] {
        with(&format!("url = '{url}'")).unwrap();
    }
    for url in [
        "http://issuer.example",
        "ftp://issuer.example",
        "issuer.example",
        "https://a:b@issuer.example",
        "https://issuer.example/?x=1",
        "https://issuer.example/#x",
        "",
    ] {
        let message = with(&format!("url = '{url}'")).unwrap_err();
        assert!(
            message.starts_with("url of the issuer \"i\" is "),
            "{url}: {message}"
        );
    }
    for (line, begins) in [
        ("", "url of the issuer \"i\" is missing"),
        (
            "url = 'https://x'\nkeys_file = 'a'\nca_file = 'b'",
            "ca_file of the issuer \"i\" is ",
        ),
        (
            "url = 'https://x'\nfoo = 1",
            "there is no foo of the issuer \"i\"",
        ),
    ] {
        let message = with(line).unwrap_err();
        assert!(message.starts_with(begins), "{line}: {message}");
    }
    let twice = format!("{ISSUER}{}", ISSUER.replace("'i'", "'j'"));
    assert!(
        read(&twice)
            .unwrap_err()
            .contains("a URL that no other issuer has")
    );
    assert!(
        read(&format!("{ISSUER}{ISSUER}"))
            .unwrap_err()
            .contains("a name that no other issuer has")
    );
    let message = read("[[issuer]]\nname = 'i'\nurl = 'https://x'").unwrap_err();
    assert!(
        message.starts_with("audience of the issuer \"i\" is missing"),
        "{message}"
    );
}

#[test]
fn a_shared_store_takes_an_issuer_only_with_a_shared_secret() {
    let text = format!("{ISSUER}[[key]]\nname = 'k'\nissuer = 'i'\nclaims = {{ sub = 'x' }}");
    let read = |store: &str, secret: &str| {
        let config = AuthConfig {
            session_secret_file: secret.to_owned(),
            ..AuthConfig::default()
        };
        KeysFile::configured(&config, &store.parse().unwrap())
            .parse(&text)
            .map(drop)
    };
    read("embedded:./x", "").unwrap();
    read("redis://localhost", "/a/secret").unwrap();
    let message = read("redis://localhost", "").unwrap_err().to_string();
    assert!(
        message.contains("gateways need one auth.session_secret_file"),
        "{message}"
    );
}

#[test]
fn a_pinned_set_of_keys_is_read_with_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let (keys, set) = (
        directory.path().join("keys.toml"),
        directory.path().join("jwks.json"),
    );
    let issuer = ISSUER.replace("audience", &format!("keys_file = {set:?}\naudience"));
    std::fs::write(
        &keys,
        format!("{issuer}[[key]]\nname = 'k'\nissuer = 'i'\nclaims = {{ sub = 'x' }}"),
    )
    .unwrap();
    // Who lists the keys on another machine does not have the set.
    KeysFile::new(&keys).look().unwrap();
    let message = KeysFile::new(&keys).read().unwrap_err().to_string();
    assert!(
        message.starts_with("keys_file of the issuer \"i\": cannot read "),
        "{message}"
    );
    std::fs::write(&set, "{}").unwrap();
    let message = KeysFile::new(&keys).read().unwrap_err().to_string();
    assert!(message.contains("it is no JSON Web Key Set"), "{message}");
}
