//! Tests of the locks file: its terms, which declaration counts, and each mistake.

use super::*;

fn parse(text: &str, is_quorum: bool) -> Result<DeclaredLocks, String> {
    DeclaredLocks::parse(text, &LimitsConfig::default(), is_quorum)
}

fn read(text: &str) -> DeclaredLocks {
    parse(text, false).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn lock(locks: &DeclaredLocks, name: &str) -> Arc<DeclaredLock> {
    locks.find(&LockName::new(name).unwrap()).unwrap()
}

/// The description of the declaration that counts for a name.
fn found(locks: &DeclaredLocks, name: &str) -> Option<String> {
    let lock = locks.find(&LockName::new(name).unwrap())?;
    lock.description.clone()
}

#[test]
fn every_term_is_read() {
    let locks = read(
        "undeclared = 'refuse'\n[[lock]]\nname = 'api'\nlimit = 20\nmin_hold_ms = 12_000\nmax_ttl_ms = 60_000\n\
         max_hold_ms = 3_600_000\nexclusive = 'refuse'\ndescription = 'twenty'\n\
         [[lock]]\nname = 'deploy'\nmode = 'exclusive'\norder = 'required'\n[[lock]]\nprefix = 'rw/'\nmode = 'shared'",
    );
    assert!(locks.refuses_undeclared);
    let api = lock(&locks, "api");
    assert_eq!(api.mode, Some(DeclaredMode::Shared));
    assert_eq!(api.limit().unwrap().get(), 20);
    assert_eq!(api.min_hold().unwrap().as_millis(), 12_000);
    assert_eq!(api.max_ttl().unwrap().as_millis(), 60_000);
    assert_eq!(api.max_hold_ms, Some(3_600_000));
    assert!(api.exclusive.is_some());
    let deploy = lock(&locks, "deploy");
    assert_eq!(deploy.mode, Some(DeclaredMode::Exclusive));
    assert!(deploy.order.is_some() && deploy.limit().is_none());
    let readers = lock(&locks, "rw/a");
    assert_eq!(
        (readers.mode, readers.limit()),
        (Some(DeclaredMode::Shared), None)
    );
}

#[test]
fn a_ttl_is_never_longer_than_the_longest_hold() {
    let locks = read("[[lock]]\nname = 'a'\nmax_ttl_ms = 60_000\nmax_hold_ms = 20_000");
    assert_eq!(lock(&locks, "a").max_ttl().unwrap().as_millis(), 20_000);
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
#[expect(clippy::too_many_lines, reason = "a table of mistakes")]
fn a_file_with_a_mistake_is_refused_with_line_and_field() {
    for (text, why) in [
        ("", "there is no [[lock]]"),
        ("undeclared = 'refuse'", "there is no [[lock]]"),
        ("[[lock]\n", "line 1: "),
        (
            "\n[[lok]]\nname = 'a'",
            "line 2: unknown field `lok`, expected `undeclared` or `lock`",
        ),
        (
            "undeclared = 'refused'",
            "line 1: unknown variant `refused`, expected `refuse`",
        ),
        (
            "[[lock]]\nname = 'a'\nlimits = 2",
            "line 3: unknown field `limits`, expected one of",
        ),
        (
            "[[lock]]\nname = 'a'\nlimit = '2'",
            "line 3: invalid type: string \"2\", expected u64",
        ),
        (
            "[[lock]]\nname = 'a'\nlimit = -2",
            "line 3: invalid value: integer `-2`, expected u64",
        ),
        (
            "[[lock]]\nname = 'a'\nmode = 'read'",
            "line 3: unknown variant `read`, expected",
        ),
        (
            "[[lock]]\nlimit = 2",
            "the [[lock]] \"\" in line 1: has a name or a prefix: one of the two",
        ),
        (
            "[[lock]]\nname = 'a'\nprefix = 'b'",
            "the [[lock]] \"a\" in line 1: has a name or a prefix",
        ),
        (
            "[[lock]]\nname = 'a b'",
            "the [[lock]] \"a b\" in line 1: name ",
        ),
        (
            "[[lock]]\nname = 'a'\n[[lock]]\nprefix = '//'",
            "the [[lock]] \"//\" in line 3: prefix ",
        ),
        (
            "[[lock]]\nname = 'a'\n[[lock]]\nname = 'a'",
            "the [[lock]] \"a\" in line 3: is declared twice",
        ),
        (
            "[[lock]]\nprefix = 'a'\n[[lock]]\nprefix = 'a'",
            "in line 3: is declared twice",
        ),
        (
            "[[lock]]\nname = 'a'\nlimit = 0",
            "in line 1: limit is 0; allowed are 1 to 1000",
        ),
        (
            "[[lock]]\nname = 'a'\nlimit = 1001",
            "limit is 1001; allowed are 1 to 1000",
        ),
        (
            "[[lock]]\nname = 'a'\nmax_ttl_ms = 99",
            "max_ttl_ms is 99; allowed are 100 to 86400000",
        ),
        (
            "[[lock]]\nname = 'a'\nmax_hold_ms = 604_800_001",
            "allowed are 100 to 604800000",
        ),
        (
            "[[lock]]\nname = 'a'\nmin_hold_ms = 0",
            "min_hold_ms is 0; allowed are 1 to 86400000",
        ),
        (
            "[[lock]]\nname = 'a'\nmin_hold_ms = 2_000\nmax_ttl_ms = 1_999",
            "min_hold_ms is 2000; allowed are 1 to 1999",
        ),
        (
            "[[lock]]\nname = 'a'\nmin_hold_ms = 2_000\nmax_hold_ms = 1_999",
            "min_hold_ms is 2000; allowed are 1 to 1999",
        ),
        (
            "[[lock]]\nname = 'a'\nlimit = 2\nmode = 'exclusive'",
            "mode is exclusive beside a limit",
        ),
        (
            "[[lock]]\nname = 'a'\nlimit = 2\norder = 'required'",
            "order is not for a shared lock or one with a limit",
        ),
        (
            "[[lock]]\nname = 'a'\nmode = 'shared'\norder = 'required'",
            "order is not for a shared lock",
        ),
        (
            "[[lock]]\nname = 'a'\nexclusive = 'refuse'",
            "exclusive is for a shared lock or one with a limit",
        ),
        (
            "[[lock]]\nname = 'a'\ndescription = ' '",
            "description is missing or empty",
        ),
        (
            "[[lock]]\nname = 'a'\ndescription = \"a\\u0007\"",
            "description has the control character",
        ),
    ] {
        let error = parse(text, false).unwrap_err();
        assert!(error.contains(why), "{text:?}: {error}");
    }
}

#[test]
fn a_quorum_refuses_what_it_cannot_do() {
    for term in [
        "limit = 2",
        "mode = 'shared'",
        "min_hold_ms = 1000",
        "order = 'required'",
    ] {
        let text = format!("[[lock]]\nname = 'a'\n{term}");
        let error = parse(&text, true).unwrap_err();
        assert!(error.contains("are not for a quorum"), "{error}");
        parse(&text, false).unwrap();
    }
    parse(
        "[[lock]]\nname = 'a'\nmax_ttl_ms = 1000\nmode = 'exclusive'",
        true,
    )
    .unwrap();
}
