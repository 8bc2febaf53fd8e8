use std::path::Path;

use crate::config::LimitsConfig;

use super::*;

fn parse(text: &str, is_quorum: bool) -> Result<DeclaredLocks, LocksFileError> {
    DeclaredLocks::parse(
        Path::new("locks.toml"),
        text,
        &LimitsConfig::default(),
        is_quorum,
    )
}

fn read(text: &str) -> DeclaredLocks {
    parse(text, false).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// The description of the declaration that counts for a name.
fn found(locks: &DeclaredLocks, name: &str) -> Option<String> {
    let lock = locks.find(&LockName::new(name).unwrap())?;
    lock.declaration.description.clone()
}

#[test]
fn every_term_is_read() {
    let locks = read(
        "undeclared = 'refuse'\n[[lock]]\nname = 'api'\nlimit = 20\nmin_hold_ms = 12_000\nmax_ttl_ms = 60_000\n\
         max_hold_ms = 3_600_000\nexclusive = 'refuse'\ndescription = 'twenty'\n\
         [[lock]]\nname = 'deploy'\nmode = 'exclusive'\norder = 'required'\n[[lock]]\nprefix = 'rw/'\nmode = 'shared'",
    );
    assert!(locks.refuses_undeclared);
    assert_eq!(locks.count(), 3);
    let lock = |name| locks.find(&LockName::new(name).unwrap()).unwrap();
    let api = lock("api");
    assert_eq!(api.sharing.unwrap().explicit_limit().unwrap().get(), 20);
    assert_eq!(api.min_hold.unwrap().as_millis(), 12_000);
    assert_eq!(api.max_ttl.unwrap().as_millis(), 60_000);
    assert_eq!(api.max_hold.unwrap().as_millis(), 3_600_000);
    assert!(api.declaration.exclusive.is_some());
    let deploy = lock("deploy");
    assert_eq!(deploy.sharing, None);
    assert_eq!(deploy.declaration.mode, Some(DeclaredMode::Exclusive));
    assert_eq!(deploy.declaration.order, Some(Required::Required));
    let readers = lock("rw/a").sharing.unwrap();
    assert_eq!(
        (readers.explicit_limit(), readers.limit.get()),
        (None, 1_000)
    );
}

#[test]
fn a_ttl_is_never_longer_than_the_longest_hold() {
    let locks = read("[[lock]]\nname = 'a'\nmax_ttl_ms = 60_000\nmax_hold_ms = 20_000");
    let lock = locks.find(&LockName::new("a").unwrap()).unwrap();
    assert_eq!(lock.max_ttl.unwrap().as_millis(), 20_000);
}

#[test]
fn a_name_beats_each_prefix_and_a_long_prefix_a_short_one() {
    let lock = |key, text| format!("[[lock]]\n{key} = '{text}'\ndescription = '{key} {text}'\n");
    let texts = [
        lock("prefix", "gpu/"),
        lock("name", "gpu/a"),
        lock("prefix", "gpu/b"),
        lock("prefix", "gpu/big/"),
        lock("prefix", "cpu/"),
    ];
    let locks = read(&texts.concat());
    for (name, declaration) in [
        ("gpu/a", "name gpu/a"),
        ("gpu/ab", "prefix gpu/"),
        ("gpu/b", "prefix gpu/b"),
        ("gpu/big", "prefix gpu/b"),
        ("gpu/big/1", "prefix gpu/big/"),
        ("cpu/1", "prefix cpu/"),
    ] {
        assert_eq!(found(&locks, name).as_deref(), Some(declaration), "{name}");
    }
    for name in ["gpu", "cp", "other", "GPU/a"] {
        assert_eq!(found(&locks, name), None, "{name}");
    }
    let all = read("[[lock]]\nprefix = ''\ndescription = 'all'");
    assert_eq!(found(&all, "a").as_deref(), Some("all"));
}

#[test]
fn files_that_mean_the_same_have_the_same_hash() {
    let hash = |text| read(text).hash;
    let plain = hash("[[lock]]\nname = 'a'\nlimit = 2\n[[lock]]\nname = 'b'\n");
    let same = "# words\nlock = [{ name = 'b' }, { limit = 2, name = \"a\", mode = 'shared' }]";
    assert_eq!(hash(same), plain);
    for other in [
        "[[lock]]\nname = 'a'\nlimit = 3\n[[lock]]\nname = 'b'\n",
        "[[lock]]\nname = 'a'\nlimit = 2\n[[lock]]\nprefix = 'b'\n",
        "[[lock]]\nname = 'a'\nlimit = 2\n",
        "undeclared = 'refuse'\n[[lock]]\nname = 'a'\nlimit = 2\n[[lock]]\nname = 'b'\n",
        "[[lock]]\nname = 'a'\nlimit = 2\n[[lock]]\nname = 'b'\ndescription = 'x'\n",
    ] {
        assert_ne!(hash(other), plain, "{other}");
    }
}

#[test]
fn a_file_with_a_mistake_is_refused_with_line_and_field() {
    for (text, why) in [
        ("", "there is no [[lock]] in locks.toml"),
        (
            "undeclared = 'refuse'",
            "there is no [[lock]] in locks.toml",
        ),
        ("[[lock]\n", "line 1 of locks.toml: "),
        (
            "\n[[lok]]\nname = 'a'",
            "line 2 of locks.toml: unknown field `lok`, expected `undeclared` or `lock`",
        ),
        (
            "undeclared = 'refused'",
            "line 1 of locks.toml: unknown variant `refused`, expected `refuse`",
        ),
        (
            "[[lock]]\nname = 'a'\nlimits = 2",
            "line 3 of locks.toml: unknown field `limits`, expected one of",
        ),
        (
            "[[lock]]\nname = 'a'\nlimit = '2'",
            "line 3 of locks.toml: invalid type: string \"2\", expected u64",
        ),
        (
            "[[lock]]\nname = 'a'\nlimit = -2",
            "line 3 of locks.toml: invalid value: integer `-2`, expected u64",
        ),
        (
            "[[lock]]\nname = 'a'\nmode = 'read'",
            "line 3 of locks.toml: unknown variant `read`, expected",
        ),
        (
            "[[lock]]\nlimit = 2",
            "name of a [[lock]] is missing (line 1 of locks.toml); allowed is a name, or instead of it a prefix",
        ),
        (
            "[[lock]]\nname = 'a'\nprefix = 'a'",
            "name of the lock \"a\" is \"a\" (line 1 of locks.toml); allowed is a name, or",
        ),
        (
            "[[lock]]\nname = 'a b'",
            "name of the lock \"a b\" is \"a b\" (line 1 of locks.toml); allowed is a name: it",
        ),
        (
            "[[lock]]\nprefix = '//'",
            "prefix of the prefix \"//\" is \"//\" (line 1 of locks.toml); allowed is a prefix of names: it",
        ),
        (
            "[[lock]]\nname = 'a'\n[[lock]]\nname = 'a'",
            "name of the lock \"a\" is \"a\" (line 3 of locks.toml); allowed is a name that no other [[lock]] has",
        ),
        (
            "[[lock]]\nprefix = 'a'\n[[lock]]\nprefix = 'a'",
            "prefix of the prefix \"a\" is \"a\" (line 3 of locks.toml); allowed is a prefix that no other",
        ),
        (
            "[[lock]]\nname = 'a'\nlimit = 0",
            "limit of the lock \"a\" is 0 (line 1 of locks.toml); allowed is a whole number from 1 to 1000 (limits.max_holders)",
        ),
        (
            "[[lock]]\nname = 'a'\nlimit = 1001",
            "a whole number from 1 to 1000 (limits.max_holders)",
        ),
        (
            "[[lock]]\nname = 'a'\nmax_ttl_ms = 99",
            "max_ttl_ms of the lock \"a\" is 99 (line 1 of locks.toml); allowed is a whole number from 100 to 86400000 (limits.max_ttl_ms)",
        ),
        (
            "[[lock]]\nname = 'a'\nmax_hold_ms = 604_800_001",
            "a whole number from 100 to 604800000 (limits.max_hold_limit_ms)",
        ),
        (
            "[[lock]]\nname = 'a'\nmin_hold_ms = 0",
            "a whole number from 1 to 86400000",
        ),
        (
            "[[lock]]\nname = 'a'\nmin_hold_ms = 2_000\nmax_ttl_ms = 1_999",
            "min_hold_ms of the lock \"a\" is 2000 (line 1 of locks.toml); allowed is a whole number from 1 to 1999 (the least of max_ttl_ms",
        ),
        (
            "[[lock]]\nname = 'a'\nmin_hold_ms = 2_000\nmax_hold_ms = 1_999",
            "a whole number from 1 to 1999 (the least of max_ttl_ms",
        ),
        (
            "[[lock]]\nname = 'a'\nlimit = 2\nmode = 'exclusive'",
            "mode of the lock \"a\" is \"exclusive\" (line 1 of locks.toml); allowed is shared beside a limit",
        ),
        (
            "[[lock]]\nname = 'a'\nlimit = 2\norder = 'required'",
            "order of the lock \"a\" is \"required\" (line 1 of locks.toml); allowed is nothing beside a limit",
        ),
        (
            "[[lock]]\nname = 'a'\nmode = 'shared'\norder = 'required'",
            "allowed is nothing beside a limit or the mode shared",
        ),
        (
            "[[lock]]\nname = 'a'\nexclusive = 'refuse'",
            "allowed is nothing without a limit or the mode shared",
        ),
        (
            "[[lock]]\nname = 'a'\ndescription = ' '",
            "description of the lock \"a\" is \" \" (line 1 of locks.toml); allowed is a text: it",
        ),
        (
            "[[lock]]\nname = 'a'\ndescription = \"a\\u0007\"",
            "allowed is a text: it has the control character",
        ),
    ] {
        let error = parse(text, false).unwrap_err().to_string();
        assert!(error.contains(why), "{text:?}: {error}");
    }
}

#[test]
fn a_quorum_refuses_what_it_cannot_do() {
    for (term, field) in [
        ("limit = 2", "limit"),
        ("mode = 'shared'", "mode"),
        ("min_hold_ms = 1000", "min_hold_ms"),
        ("order = 'required'", "order"),
    ] {
        let text = format!("[[lock]]\nname = 'a'\n{term}");
        let error = parse(&text, true).unwrap_err().to_string();
        assert!(
            error.starts_with(&format!("{field} of the lock \"a\" is")),
            "{error}"
        );
        assert!(error.contains("nothing on a quorum"), "{error}");
        parse(&text, false).unwrap();
    }
    parse(
        "[[lock]]\nname = 'a'\nmax_ttl_ms = 1000\nmode = 'exclusive'",
        true,
    )
    .unwrap();
}
