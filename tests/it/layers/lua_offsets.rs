//! Offsets in Lua: a script names the field of a record, and does not count bytes.

use std::collections::BTreeSet;

/// Calls whose arguments are offsets.
const CALLS: [&str; 6] = [
    "string.sub(",
    "string.byte(",
    ":sub(",
    ":byte(",
    "'GETRANGE',",
    "'SETRANGE',",
];
const COMPARISONS: [&str; 6] = ["==", "~=", "<=", ">=", "<", ">"];

/// The number of offsets in a script: an integer above 1 in an argument of `CALLS` or in a comparison with a length,
/// and a local with such a value there.
pub(super) fn count(script: &str) -> usize {
    let lines = script.lines().map(|line| line.split("--").next().unwrap());
    let code = lines.collect::<Vec<_>>().join("\n");
    let locals = constants(&code);
    let is_offset = |word: &str| is_above_one(word) || locals.contains(word);
    let mut found = 0;
    for call in CALLS {
        for (at, _) in code.match_indices(call) {
            let arguments = arguments(&code[at + call.len()..]);
            found += words(&arguments).filter(|word| is_offset(word)).count();
        }
    }
    for (at, _) in code.match_indices('#') {
        let after = &code[at + 1..];
        let end = after.find(|c: char| !(c.is_alphanumeric() || "_.[]".contains(c)));
        let (before, after) = (
            code[..at].trim_end(),
            after[end.unwrap_or(after.len())..].trim_start(),
        );
        let compared = |text: &str| words(text).next().is_some_and(is_offset);
        let is_compared = COMPARISONS.iter().any(|sign| {
            let left = before
                .strip_suffix(sign)
                .map(|left| left.trim_end().rsplit(' ').next().unwrap());
            after.strip_prefix(sign).is_some_and(compared) || left.is_some_and(compared)
        });
        found += usize::from(is_compared);
    }
    found
}

/// Names of locals whose value is an integer above 1.
fn constants(code: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for line in code.lines() {
        let Some((names, values)) = line
            .trim()
            .strip_prefix("local ")
            .and_then(|rest| rest.split_once('='))
        else {
            continue;
        };
        for (name, value) in names.split(',').zip(values.split(',')) {
            if is_above_one(value.trim()) {
                found.insert(name.trim().to_owned());
            }
        }
    }
    found
}

/// The arguments of a call up to its closing parenthesis, without those of nested calls.
fn arguments(text: &str) -> String {
    let mut depth = 0;
    let mut found = String::new();
    for c in text.chars() {
        match c {
            '(' => depth += 1,
            ')' if depth == 0 => break,
            ')' => depth -= 1,
            _ if depth == 0 => found.push(c),
            _ => {}
        }
    }
    found
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| !(c.is_alphanumeric() || "_-".contains(c)));
    words.filter(|word| !word.is_empty())
}

fn is_above_one(word: &str) -> bool {
    word.parse::<u32>().is_ok_and(|number| number > 1)
}

#[test]
fn finds_offsets() {
    for (script, offsets) in [
        ("local a = string.sub(held, 1, 65)", 1),
        (
            "local a = string.sub(held, 103, 118) - string.byte(held, 66)",
            3,
        ),
        ("redis.call('GETRANGE', of, '1', '16')", 1),
        ("local AT = 17\nlocal a = body:sub(AT)", 1),
        ("if #us == 16 then", 1),
        ("if 16 < #us then", 1),
        ("-- string.sub(held, 103, 118)", 0),
        ("local a = string.sub(lock, 1, -5) .. lease_fence(held)", 0),
        ("if #ids == 0 or tonumber(x) == 16 then", 0),
    ] {
        assert_eq!(count(script), offsets, "{script}");
    }
}
