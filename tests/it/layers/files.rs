//! Limits for the size and the names of files.

use crate::support::tree::{Source, sources};

/// A file with more lines must be split.
const MOST_LINES: usize = 800;
/// Names that do not say what a file contains.
const NO_NAMES: [&str; 7] = [
    "util", "utils", "common", "helper", "helpers", "types", "misc",
];

fn all() -> Vec<Source> {
    sources(&["src", "clients/rust", "crates", "tests"])
}

fn none_is(what: &str, wrong: impl Fn(&Source) -> bool) {
    let found: Vec<_> = all()
        .into_iter()
        .filter(wrong)
        .map(|source| source.path)
        .collect();
    assert!(found.is_empty(), "{what}:\n{}", found.join("\n"));
}

#[test]
fn every_file_begins_by_saying_what_it_is() {
    none_is("begin without a //! line", |source| {
        !source.text.starts_with("//! ")
    });
}

#[test]
fn no_file_is_longer_than_the_ceiling() {
    none_is("are too long", |source| {
        source.text.lines().count() > MOST_LINES
    });
}

#[test]
fn no_test_passes_on_the_signal_dispositions_of_whoever_started_it() {
    let around = ["Command", "new("].join("::");
    none_is("start programs without `support::spawn`", |source| {
        let starts = || source.text.contains(&around);
        source.path.starts_with("tests/") && !source.path.ends_with("support/spawn.rs") && starts()
    });
}

#[test]
fn no_module_is_named_after_nothing() {
    none_is("have a name that says nothing", |source| {
        source
            .path
            .split('/')
            .any(|part| NO_NAMES.contains(&part.trim_end_matches(".rs")))
    });
}

#[test]
fn a_mod_file_only_names_what_is_in_it() {
    none_is("do more than name their modules", |source| {
        source.path.ends_with("/mod.rs") && !only_names(&source.text)
    });
}

#[test]
fn tells_a_list_of_modules_from_code() {
    assert!(only_names(
        "//! Doc.\n\n#[cfg(test)]\nmod a;\npub(crate) mod b;\n\npub use b::{\n    C, D,\n};\n"
    ));
    for code in [
        "fn f() {}",
        "mod a { }",
        "const A: u8 = 1;",
        "mod a;\nimpl X {}\n",
        "static mod_a: u8;",
    ] {
        assert!(!only_names(code), "{code}");
    }
}

/// Whether a text consists only of comments, `mod NAME;` and `use ..;`.
fn only_names(text: &str) -> bool {
    let lines = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.starts_with("//"));
    let code = lines.collect::<Vec<_>>().join(" ");
    let statements = code
        .split(';')
        .map(str::trim)
        .filter(|statement| !statement.is_empty());
    let mut statements = statements.map(without_attributes).map(without_visibility);
    statements.all(|statement| {
        let is_name = |name: &str| name.chars().all(|c| c.is_alphanumeric() || c == '_');
        match statement.split_once(' ') {
            Some(("mod", name)) => is_name(name),
            Some(("use", _)) => true,
            _ => false,
        }
    })
}

fn without_attributes(mut statement: &str) -> &str {
    while let Some((attribute, rest)) = statement.split_once(']') {
        if !attribute.starts_with("#[") {
            break;
        }
        statement = rest.trim_start();
    }
    statement
}

fn without_visibility(statement: &str) -> &str {
    let Some(rest) = statement.strip_prefix("pub") else {
        return statement;
    };
    match rest.trim_start().strip_prefix('(') {
        Some(scope) => scope
            .split_once(')')
            .map_or(scope, |(_, rest)| rest.trim_start()),
        None => rest.trim_start(),
    }
}
