//! The contract at the head of each script says what its body does.

use std::{collections::BTreeSet, fs, path::PathBuf};

const PARTS: [&str; 7] = [
    "KEYS", "ARGV", "Reply", "Replay", "Clock", "Cluster", "Cost",
];

/// Name, header and body of every script that is called; not of the parts they share.
fn scripts() -> Vec<(String, String, String)> {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/store/redis/lua");
    let mut scripts = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        if ["lease", "queue"].contains(&name.as_str()) {
            continue;
        }
        let text = fs::read_to_string(path).unwrap();
        let head = text
            .lines()
            .take_while(|line| line.starts_with("--"))
            .count();
        let part = |lines: Vec<&str>| lines.join("\n");
        let header = part(text.lines().take(head).collect());
        let body = part(text.lines().skip(head).collect());
        scripts.push((name, header, body));
    }
    assert_eq!(scripts.len(), 9, "a script was added or removed");
    scripts
}

/// The numbers that a part of the header declares.
fn declared(header: &str, part: &str) -> BTreeSet<usize> {
    header
        .lines()
        .skip_while(|line| *line != format!("-- {part}"))
        .skip(1)
        .take_while(|line| line.starts_with("--  "))
        .filter_map(|line| {
            line.trim_start_matches("--")
                .split_whitespace()
                .next()?
                .parse()
                .ok()
        })
        .collect()
}

/// The indices with which the body reads an array.
fn used(body: &str, array: &str) -> BTreeSet<usize> {
    let code = body.lines().map(|line| line.split("--").next().unwrap());
    let code = code.collect::<Vec<_>>().join("\n");
    let all = code.matches(array).count();
    let indexed: Vec<usize> = code
        .split(&format!("{array}["))
        .skip(1)
        .map(|rest| {
            rest.split(']')
                .next()
                .unwrap()
                .parse()
                .expect("a constant index")
        })
        .collect();
    assert_eq!(
        indexed.len(),
        all,
        "{array} is used otherwise than by a constant index"
    );
    indexed.into_iter().collect()
}

#[test]
fn every_header_has_its_parts_in_order() {
    for (name, header, _) in scripts() {
        let parts: Vec<&str> = header
            .lines()
            .filter_map(|line| line.strip_prefix("-- "))
            .filter(|line| PARTS.contains(line))
            .collect();
        assert_eq!(parts, PARTS, "{name}");
    }
}

#[test]
fn every_header_declares_exactly_the_keys_and_arguments_that_the_body_uses() {
    for (name, header, body) in scripts() {
        for part in ["KEYS", "ARGV"] {
            assert_eq!(
                declared(&header, part),
                used(&body, part),
                "{part} of {name}"
            );
        }
    }
}

#[test]
fn no_script_turns_a_number_into_text_as_lua_does() {
    for (name, _, body) in scripts() {
        for word in ["tostring", "cjson", "os.time", "math.random"] {
            assert!(!body.contains(word), "{name} uses {word}");
        }
    }
}
