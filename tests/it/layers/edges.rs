//! Modules depend on each other in one direction only.

use std::collections::BTreeMap;

use crate::support::{
    rows,
    tree::{Source, sources},
    words,
};

/// The modules that each module may use: the arrows of ARCHITECTURE.md. `-` stands for none.
const ALLOWED: &str = "
    release => -
    invisible_chars => -
    with_all => -
    file_stamp => lock lifecycle
    clock => lock
    lifecycle => lock
    config => lock tls bounded_file
    telemetry => lock tls bounded_file clock lifecycle config release trace_context
        .. invisible_chars with_all
    audit => lock clock config invisible_chars
    auth => lock tls bounded_file file_stamp clock lifecycle config audit invisible_chars
    store => lock tls bounded_file file_stamp clock lifecycle config telemetry
    engine => lock clock lifecycle config telemetry auth store with_all
    http => lock tls file_stamp clock lifecycle config telemetry audit auth store engine release
        .. trace_context
    cli => lock tls bounded_file file_stamp clock lifecycle config telemetry audit auth store
        .. engine http client release trace_context invisible_chars with_all
";

/// The table for the client's crate, only for modules that the gateway uses; the others may use everything.
const ALLOWED_OF_CLIENT: &str = "
    bounded_file => -
    tls => lock bounded_file
";

#[test]
fn modules_use_only_what_lies_below_them() {
    let mut wrong = violations("src", ALLOWED, true);
    wrong.extend(violations("clients/rust/src", ALLOWED_OF_CLIENT, false));
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// The uses that the table does not allow; with `all`, also the modules that are missing in the table.
fn violations(root: &str, allowed: &str, all: bool) -> Vec<String> {
    let allowed: BTreeMap<_, _> = rows(allowed).collect();
    let mut wrong = Vec::new();
    for source in sources(&[root]) {
        let inside = source.path.strip_prefix(root).expect("it was found there");
        let Some(module) = module(&inside[1..]) else {
            continue;
        };
        let Some(allowed) = allowed.get(&module) else {
            if all {
                wrong.push(format!("{}: {module} has no place in the map", source.path));
            }
            continue;
        };
        for used in used(&source) {
            if used != module && words(allowed).all(|it| it != used) {
                wrong.push(format!("{}: {module} uses {used}", source.path));
            }
        }
    }
    wrong
}

#[test]
fn finds_every_way_to_write_a_path() {
    let source = |text: &str| Source {
        path: "src/lock/x.rs".to_owned(),
        text: text.to_owned(),
    };
    let found = |text: &str| used(&source(text));
    assert_eq!(found("use crate::store::Store;"), ["store"]);
    assert_eq!(
        found("use crate::{\n    clock::Clock,\n    store::{a, b::c},\n};"),
        ["clock", "store"]
    );
    assert_eq!(found("fn f(x: crate::http::X) {}"), ["http"]);
    assert_eq!(found("pub(in crate::engine) fn f() {}"), ["engine"]);
    assert_eq!(found("// not crate::http\n/// [`crate::http`]\n"), [""; 0]);
}

/// The module of a file; `None` for the roots, which name all modules.
fn module(inside: &str) -> Option<String> {
    match inside.split_once('/') {
        Some((module, _)) => Some(module.to_owned()),
        None if matches!(inside, "lib.rs" | "main.rs") => None,
        None => inside.strip_suffix(".rs").map(str::to_owned),
    }
}

/// The top-level modules that a file names anywhere.
fn used(source: &Source) -> Vec<String> {
    let code: Vec<_> = source
        .text
        .lines()
        .map(|line| line.split("//").next().unwrap_or_default())
        .collect();
    let code = code.join("\n");
    let mut used = Vec::new();
    for (at, _) in code.match_indices("crate::") {
        let rest = &code[at + "crate::".len()..];
        match rest.strip_prefix('{') {
            Some(list) => used.extend(first_names(list)),
            None => used.push(name(rest)),
        }
    }
    used.retain(|name| name.starts_with(|c: char| c.is_ascii_lowercase()));
    used.sort();
    used.dedup();
    used
}

/// The first name of every path in a list, up to its closing brace.
fn first_names(list: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut depth = 0_usize;
    let mut begins = true;
    for (at, c) in list.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => begins = true,
            c if begins && !c.is_whitespace() => {
                names.push(name(&list[at..]));
                begins = false;
            }
            _ => {}
        }
    }
    names
}

fn name(text: &str) -> String {
    text.chars()
        .take_while(|c| c.is_alphanumeric() || *c == '_')
        .collect()
}
