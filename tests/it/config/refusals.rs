//! Configurations that prevent the start, and their errors.

use std::{ffi::OsString, fs};

use latchgate::config::{Loaded, Sources};

use crate::support::rows;

/// The configuration of a file, or its error without the directory.
fn load(text: &str) -> Result<Loaded, String> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("lg.toml");
    fs::write(&path, text).unwrap();
    let sources = Sources {
        file: Some(path),
        ..Sources::default()
    };
    let place = format!("{}/", directory.path().display());
    let loaded = sources.load();
    loaded.map_err(|error| error.to_string().replace(&place, ""))
}

/// The error of a file.
fn file(text: &str) -> String {
    load(text).unwrap_err()
}

fn variable(name: &str, value: impl Into<OsString>) -> String {
    let sources = Sources {
        variables: vec![(name.into(), value.into())],
        ..Sources::default()
    };
    sources.load().unwrap_err().to_string()
}

/// Each row is a setting and its error: lines of a file, with `|` between them, or a variable.
#[test]
fn what_cannot_be_is_named_with_where_it_stands_and_what_is_allowed() {
    let cases = r#"
        [limits]||default_ttl = 3 => there is no key limits.default_ttl (line 3 of lg.toml);
            .. did you mean limits.default_ttl_ms?
        [tls]|cert = 'x' => there is no key tls.cert (line 2 of lg.toml);
            .. `latchgate config default` prints every key
        [htp] => there is no key htp (line 1 of lg.toml); did you mean http?
        [limits]|min_ttl_ms = '100'
            => limits.min_ttl_ms is "100" (line 2 of lg.toml); allowed is a whole number
            .. from 100 to 86400000
        insecure_no_auth = 1 => insecure_no_auth is 1 (line 1 of lg.toml); allowed is true or false
        limits = 1 => limits is 1 (line 1 of lg.toml); allowed is a table
        [listen]|a = 1 => there is no key listen.a (line 2 of lg.toml); did you mean listen?
        [limits]|max_ttl_ms = 20000
            => limits.default_ttl_ms is 30000 (the default); allowed is at most 20000,
            .. the value of limits.max_ttl_ms (line 2 of lg.toml)
        [http]|allowed_origins = 'https://a'
            => http.allowed_origins is "https://a" (line 2 of lg.toml); allowed is a list of texts
        |threads = 99999999999999999999 => threads is 100000000000000000000.0 (line 2 of lg.toml);
            .. allowed is a whole number from 0 to 512
        [history]|entries = 501 => history.entries is 501 (line 2 of lg.toml); allowed is a whole number
            .. from 0 to 500
        [history]|keep_ms = 59999 => history.keep_ms is 59999 (line 2 of lg.toml); allowed is a whole
            .. number from 60000 to 7776000000
        [history]|after_ms = 999 => history.after_ms is 999 (line 2 of lg.toml); allowed is a whole
            .. number from 1000 to 86400000
        [history]|addresses = 'all' => history.addresses is "all" (line 2 of lg.toml); allowed is true
            .. or false
        [locks]|fil = 'x' => there is no key locks.fil (line 2 of lg.toml); did you mean locks.file?
        [locks]|file = 1 => locks.file is 1 (line 2 of lg.toml); allowed is a text
        REDIS_CONNECTIONS=many => redis.connections is "many" HERE; allowed is a whole number
            .. from 0 to 256
        LOG_FORMAT=xml => log.format is "xml" HERE; allowed is text or json
        LISTEN=localhost:7420 => listen is "localhost:7420" HERE; allowed is IP:PORT,
            .. such as 127.0.0.1:7420 or [::1]:7420
        STORE=mysql://a,b,c => store is "mysql:***" HERE; STORES (this one has no scheme of these)
        STORE= => store is "" HERE; STORES (this one is empty)
        CONFIG= => the environment variable LATCHGATE_CONFIG is empty; name a configuration file,
            .. or leave it out for none
        HTTP_ALLOWED_HOSTS=a.example, *.example
            => http.allowed_hosts is ["a.example", "*.example"] HERE; allowed is a name or an
            .. IP address (IPv6 in brackets), and perhaps a port: locks.example.com, 127.0.0.1:7420,
            .. [::1]
    "#;
    let stores = "allowed is embedded:DIR, redis://[USER:PASSWORD@]HOST[:PORT][/DB], \
         redis+sentinel://[USER:PASSWORD@]HOST[:PORT],../SERVICE[/DB], \
         redis+cluster://[USER:PASSWORD@]HOST[:PORT],.., \
         redlock://[USER:PASSWORD@]HOST[:PORT],..[/DB], or rediss.. and redlocks.. for TLS";
    for (setting, said) in rows(&cases.replace("STORES", stores)) {
        let name = setting.split('=').next().unwrap_or_default();
        if name
            .bytes()
            .all(|byte| byte.is_ascii_uppercase() || byte == b'_')
        {
            let name = format!("LATCHGATE_{name}");
            let here = format!("(the environment variable {name})");
            let (_, value) = setting.split_once('=').unwrap();
            assert_eq!(variable(&name, value), said.replace("HERE", &here));
        } else {
            assert_eq!(file(&setting.replace('|', "\n")), said);
        }
    }
}

#[test]
fn an_origin_that_cannot_be_listed_is_refused_with_the_reason() {
    let listed = |origin: &str| {
        file(&format!(
            "[http]\nallowed_origins = ['https://a', '{origin}']"
        ))
    };
    assert_eq!(
        listed("null"),
        "http.allowed_origins is [\"https://a\", \"null\"] (line 2 of lg.toml); allowed is origins \
         by their names: a browser sends `null` for every page without an origin, such as a frame \
         that anybody can put into any page"
    );
    let message = listed("*");
    assert!(
        message.ends_with("`*` would let every web page take locks"),
        "{message}"
    );
    for origin in ["https://a/", "ci.example.com", "https://*.example.com"] {
        let message = listed(origin);
        assert!(message.contains("origins such as https://"), "{message}");
    }
}

#[test]
fn no_message_shows_a_password() {
    let urls = [
        "redis://u:s3cret@h/x",
        "rediss://u:s3cret@h/x",
        "redis://u:s3cret@",
        "redis:u:s3cret@h",
        "u:s3cret@h",
        "s3cret",
    ];
    for url in urls {
        for message in [
            variable("LATCHGATE_STORE", url),
            file(&format!("store = '{url}'")),
            // A quote without its end.
            file(&format!("store = '{url}")),
            file(&format!("store = ['{url}']")),
            file(&format!("store = {{ url = '{url}' }}")),
        ] {
            assert!(!message.contains("s3cret"), "{message}");
        }
    }
}

#[test]
fn a_debug_output_shows_no_password() {
    let sources = Sources {
        variables: vec![("LATCHGATE_STORE".into(), "redis://:s3cret@h".into())],
        ..Sources::default()
    };
    let refused = Sources {
        flags: vec![("store", "--store", "redis://:s3cret@h".to_owned())],
        ..sources.clone()
    };
    let shown = format!(
        "{sources:?} {:?} {refused:?} {:?}",
        sources.load().unwrap(),
        refused.load().unwrap_err()
    );
    assert!(
        shown.contains("LATCHGATE_STORE") && !shown.contains("s3cret"),
        "{shown}"
    );
}

#[test]
fn a_file_that_is_not_toml_or_not_there_is_named() {
    let message = file("listen = '127.0.0.1:1'\nstore =");
    assert!(
        message.starts_with("line 2 of lg.toml is not TOML: "),
        "{message}"
    );
    let message = variable("LATCHGATE_CONFIG", "/does/not/exist");
    assert!(
        message.starts_with(
            "cannot read the configuration file /does/not/exist \
             (the environment variable LATCHGATE_CONFIG): No such file"
        ),
        "{message}"
    );
}

#[test]
fn a_whole_number_has_no_sign() {
    for text in ["-0", "+5", "-1", ""] {
        assert_eq!(
            variable("LATCHGATE_SHUTDOWN_GRACE_MS", text),
            format!(
                "shutdown.grace_ms is {text:?} (the environment variable \
                 LATCHGATE_SHUTDOWN_GRACE_MS); allowed is a whole number from 0 to 600000"
            )
        );
    }
}

#[test]
fn a_number_beyond_its_bounds_is_named_with_them() {
    for (key, beyond, bounds) in [
        ("threads", 513, "0 to 512"),
        ("http.max_body_bytes", 0, "8192 to 1048576"),
        ("http.max_body_bytes", 1_048_577, "8192 to 1048576"),
        ("limits.min_ttl_ms", 99, "100 to 86400000"),
        ("limits.max_ttl_ms", 86_400_001, "100 to 86400000"),
        ("limits.max_holders", 10_000, "1 to 9999"),
        ("limits.reconnect_grace_ms", 60_001, "0 to 60000"),
        ("redis.connections", 257, "0 to 256"),
        ("redis.wait_replicas", 17, "0 to 16"),
        ("auth.session_ttl_ms", 59_999, "60000 to 2592000000"),
    ] {
        assert_eq!(
            file(&format!("{key} = {beyond}")),
            format!(
                "{key} is {beyond} (line 1 of lg.toml); allowed is a whole number from {bounds}"
            )
        );
    }
}

#[cfg(unix)]
#[test]
fn a_variable_that_is_not_text_is_refused() {
    use std::os::unix::ffi::OsStringExt;

    assert_eq!(
        variable("LATCHGATE_STORE", OsString::from_vec(vec![b'x', 0xff])),
        "the value of the environment variable LATCHGATE_STORE is not UTF-8"
    );
}

#[test]
fn metrics_have_no_address_that_the_gateway_has_itself() {
    for (gateway, metrics) in [
        ("127.0.0.1:7420", "127.0.0.1:7420"),
        ("127.0.0.1:7420", "0.0.0.0:7420"),
        ("[::1]:7420", "[::]:7420"),
    ] {
        let said = file(&format!(
            "listen = '{gateway}'\n[metrics]\nlisten = '{metrics}'"
        ));
        let begins = format!("metrics.listen is {metrics} (line 3 of lg.toml)");
        assert!(said.starts_with(&begins), "{said}");
        assert!(said.contains("listen"), "{said}");
    }
    // Free ports are never the same, so both addresses may be port 0.
    for allowed in ["127.0.0.1:0", "127.0.0.1:7421", "127.0.0.2:7420"] {
        let listen = if allowed.ends_with(":0") {
            allowed
        } else {
            "127.0.0.1:7420"
        };
        let text = format!("listen = '{listen}'\n[metrics]\nlisten = '{allowed}'");
        load(&text).unwrap();
    }
}
