//! The contract at the head of each script agrees with its body.

use std::{collections::BTreeSet, fs, path::PathBuf};

use latchgate::store::{contract::TOMBSTONE, redis::inline_fields};

use crate::support::{golden::assert_golden, tree::sources};

const PARTS: [&str; 7] = [
    "KEYS", "ARGV", "Reply", "Replay", "Clock", "Cluster", "Cost",
];

/// First line of a script that a server also runs without free memory, but refuses if it accepts no writes.
const FLAGS: &str = "#!lua flags=allow-oom";
/// First line of a script that a server also refuses without free memory.
const REFUSED: &str = "#!lua\n";
/// The directories of the scripts.
const DIRECTORIES: [&str; 7] = [
    "src/store/redis/scripts",
    "src/store/redis/scripts/parts",
    "src/store/redis/client",
    "src/store/redis/history",
    "src/store/redis/health",
    "src/store/redis/redlock/lua",
    "src/store/redis/redlock/lua/parts",
];

/// The file with the ACL line.
const ACL_LINE: &str = "src/store/redis/client/failure.rs";

/// Name and text of every file, with the number of the tombstone in the place of its name.
fn files() -> Vec<(String, String)> {
    let mut files = Vec::new();
    let tombstone = TOMBSTONE.as_millis().to_string();
    for directory in DIRECTORIES {
        let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(directory);
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|end| end != "lua") {
                continue;
            }
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            let text = fs::read_to_string(path).unwrap();
            let text = text.replace("TOMBSTONE", &tombstone);
            let text = text.replace("ORDER_KEEP", "60000");
            files.push((name, text.replace("MOST_ORDERS", "100")));
        }
    }
    files
}

/// A script as it is sent: with its imported parts, and with offsets in the place of field names.
pub(crate) fn composed(name: &str) -> String {
    inline_fields(&joined(name))
}

/// A script with its imported parts.
fn joined(name: &str) -> String {
    let files = files();
    let file = |name: &str| {
        let found = files.iter().find(|(file, _)| file == name);
        found.expect("the file is there").1.as_str()
    };
    let lines = file(name).lines().map(|line| {
        let part = line.strip_prefix("-- import ");
        part.map_or(line, &file)
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Whether a file is a script, and not a part that scripts import.
fn is_script(text: &str) -> bool {
    text.lines().any(|line| line == "-- KEYS")
}

/// Name, header and body of every script, without the shared parts.
fn scripts() -> Vec<(String, String, String)> {
    let mut scripts = Vec::new();
    for (name, text) in files() {
        if !is_script(&text) {
            continue;
        }
        let text = text.trim_start_matches(FLAGS).trim_start_matches(REFUSED);
        let text = text.trim_start();
        let head = text
            .lines()
            .take_while(|line| line.starts_with("--"))
            .count();
        let part = |lines: Vec<&str>| lines.join("\n");
        let header = part(text.lines().take(head).collect());
        let body = part(text.lines().skip(head).collect());
        scripts.push((name, header, body));
    }
    assert!(scripts.len() > 20, "{} scripts", scripts.len());
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

/// The indices at which the body reads an array.
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

/// The functions and values that a part defines.
fn defined(part: &str) -> Vec<&str> {
    let names = part.lines().filter_map(|line| line.strip_prefix("local "));
    let names = names.map(|line| line.trim_start_matches("function "));
    let names = names.filter_map(|line| line.split([' ', '(', ',']).next());
    names.collect()
}

/// Whether a text contains a name as a whole word.
fn uses(text: &str, name: &str) -> bool {
    let code = text.lines().map(|line| line.split("--").next().unwrap());
    let inside = |c: char| c.is_alphanumeric() || c == '_' || c == '\'' || c == '.';
    code.flat_map(|line| line.split(|c| !inside(c)))
        .any(|word| word == name)
}

#[test]
fn every_script_imports_each_part_that_it_uses_before_it_and_no_other() {
    let files = files();
    for (script, _) in files.iter().filter(|(_, text)| is_script(text)) {
        let joined = joined(script);
        for (part, text) in files.iter().filter(|(_, text)| !is_script(text)) {
            let names = defined(text);
            let uses_it = |text: &str| names.iter().any(|name| uses(text, name));
            let (before, after) = joined.split_once(text.trim_end()).unwrap_or((&joined, ""));
            assert!(
                !uses_it(before),
                "{script} uses {part} before it imports it"
            );
            assert_eq!(
                uses_it(after),
                !after.is_empty(),
                "{script} imports {part} for nothing"
            );
        }
    }
}

/// The lines with field names, as they are sent. The other lines are sent unchanged.
#[test]
fn the_names_of_fields_become_the_places_that_are_committed() {
    let mut places = String::new();
    let mut files = files();
    files.sort();
    for (name, text) in files {
        let inlined = inline_fields(&text);
        let lines = text.lines().zip(inlined.lines());
        let changed = lines.filter(|(named, inlined)| named != inlined);
        let changed: Vec<_> = changed.map(|(_, inlined)| inlined.trim()).collect();
        if !changed.is_empty() {
            places.extend([&format!("-- {name}\n"), &changed.join("\n"), "\n"]);
        }
    }
    assert_golden("tests/it/golden/places.lua", &places);
}

#[test]
fn every_file_is_in_the_program_and_every_part_is_imported() {
    let sources = sources(&["src/store/redis"]);
    let mut included = BTreeSet::new();
    for source in &sources {
        for (end, _) in source.text.match_indices(".lua\"") {
            included.extend(source.text[..end].rsplit(['"', '/']).next());
        }
    }
    let files = files();
    for (name, text) in &files {
        assert!(included.contains(name.as_str()), "{name} is not included");
        let import = format!("-- import {name}");
        let mut lines = files.iter().flat_map(|(_, text)| text.lines());
        assert!(
            is_script(text) || lines.any(|line| line == import),
            "no script imports {name}"
        );
    }
}

#[test]
fn no_part_reads_keys_and_arguments_by_their_position() {
    for (name, text) in files().iter().filter(|(_, text)| !is_script(text)) {
        for array in ["KEYS", "ARGV"] {
            assert!(!text.contains(array), "{name} uses {array}");
        }
    }
}

#[test]
fn a_server_that_takes_no_writes_runs_no_script_that_could_answer_by_its_own_data() {
    for (name, text) in files().iter().filter(|(_, text)| is_script(text)) {
        // The probe finds out which commands are refused, and an acquire ends with a write in any case.
        let otherwise = ["probe", "quorum_probe", "acquire"].contains(&name.as_str());
        let flagged = text.starts_with(FLAGS) || text.starts_with(REFUSED);
        assert_eq!(flagged, !otherwise, "{name}");
    }
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

/// The commands of the ACL lines that are sent directly, without a script.
const PLAIN: &str =
    "evalsha eval info type subscribe ping role wait asking cluster|info cluster|slots";

/// The commands that a text calls.
fn calls(text: &str) -> BTreeSet<String> {
    let words = text
        .split("redis.call('")
        .skip(1)
        .chain(text.split("redis.pcall('").skip(1));
    let words = words.map(|rest| rest.split('\'').next().unwrap().to_owned());
    words.collect()
}

#[test]
fn each_topology_is_probed_for_what_its_scripts_call_and_the_acl_line_allows_no_other() {
    let source = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(ACL_LINE);
    let source = fs::read_to_string(source).unwrap();
    for (probe, line, directories) in [
        ("probe", "const ACL_LINE: &str", &DIRECTORIES[..5]),
        (
            "quorum_probe",
            "const NODE_ACL_LINE: &str",
            &DIRECTORIES[3..],
        ),
    ] {
        let mut called: BTreeSet<String> = BTreeSet::new();
        for directory in directories {
            let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(directory);
            for entry in fs::read_dir(directory).unwrap() {
                called.extend(calls(
                    &fs::read_to_string(entry.unwrap().path()).unwrap_or_default(),
                ));
            }
        }
        // Only a list needs SCAN, and sends it directly.
        called.insert("SCAN".to_owned());
        assert!(called.len() > 10, "{called:?}");
        let text = composed(probe);
        let tried = text.split("{ '").skip(1);
        let tried = tried.map(|rest| rest.split('\'').next().unwrap().to_owned());
        // The probe tries TIME in another way than the listed commands.
        let mut tried: BTreeSet<String> = tried.collect();
        tried.insert("TIME".to_owned());
        assert_eq!(tried, called, "{probe}");

        let (_, line) = source.split_once(line).unwrap();
        let line = line.split(';').next().unwrap();
        let words = line.split(|c: char| c.is_whitespace() || c == '"');
        let allowed = words.filter_map(|word| word.strip_prefix('+'));
        let allowed = allowed.filter(|word| !PLAIN.split_whitespace().any(|plain| plain == *word));
        let allowed: BTreeSet<String> = allowed.map(str::to_uppercase).collect();
        assert_eq!(allowed, called, "{probe}");
    }
    let probe = composed("probe");
    // Old servers may lack these forms of the commands.
    for form in ["probe, '', 'GET' }", "'PEXPIRE', probe, '1000', 'LT' }"] {
        assert!(probe.contains(form), "{form}");
    }
    assert!(probe.contains("refusal({ 'EXISTS', probe .. ':of' })"));
}
