//! The table of faults in the report on reliability: everything that it names exists, and it names every fault of the
//! torture run.

use std::{collections::BTreeSet, fs, path::Path};

use crate::support::tree::{Source, sources};

/// The number of columns after the name of the fault.
const STORES: usize = 5;

/// The rows of the table without its head.
fn rows(report: &str) -> Vec<Vec<String>> {
    let (_, section) = report
        .split_once("\n## Faults, one by one\n")
        .expect("there is such a section");
    let section = section.split("\n## ").next().unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| "));
    let cells = |row: &str| -> Vec<String> {
        let row = row.trim_matches('|');
        row.split('|').map(|cell| cell.trim().to_owned()).collect()
    };
    rows.skip(1).map(cells).collect()
}

/// The names in backticks of a cell.
fn named(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

/// Whether a path names an existing module, or a function in one.
fn exists(path: &str, sources: &[Source]) -> bool {
    let words: Vec<_> = path.split("::").collect();
    let at = |words: &[&str]| {
        let place = words.join("/");
        let places = [
            "tests/it",
            "src",
            "clients/rust/src",
            "crates/vocabulary/src",
        ]
        .map(|root| format!("{root}/{place}"));
        sources.iter().filter(move |source| {
            let is_at = |place: &String| {
                source.path == format!("{place}.rs") || source.path == format!("{place}/mod.rs")
            };
            places.iter().any(is_at)
        })
    };
    let Some((function, parents)) = words.split_last() else {
        return false;
    };
    let is_function = |source: &Source| source.text.contains(&format!("fn {function}("));
    at(&words).next().is_some() || at(parents).any(is_function)
}

#[test]
fn every_test_that_the_table_names_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let report = fs::read_to_string(root.join("docs/reliability-report.md")).unwrap();
    let sources = sources(&["src", "clients/rust/src", "crates", "tests"]);
    let tortures = fs::read_to_string(root.join("tests/torture/faults/fault.rs")).unwrap();
    let rows = rows(&report);
    assert!(rows.len() > 30, "{} faults", rows.len());
    let mut missing = Vec::new();
    for row in &rows {
        assert_eq!(row.len(), 1 + STORES, "{row:?}");
        for cell in &row[1..] {
            assert!(!cell.is_empty(), "{row:?}");
            for name in named(cell) {
                let is_there = match name.strip_prefix("torture: ") {
                    Some(fault) => tortures.contains(&format!("\"{fault}\"")),
                    None if name.contains('/') => root.join(name).exists(),
                    None => exists(name, &sources),
                };
                if !is_there {
                    missing.push(name);
                }
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn every_fault_of_the_torture_run_is_in_the_table() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let report = fs::read_to_string(root.join("docs/reliability-report.md")).unwrap();
    let faults = fs::read_to_string(root.join("tests/torture/faults/fault.rs")).unwrap();
    let rows = rows(&report);
    let listed: BTreeSet<_> = rows.iter().flatten().flat_map(|cell| named(cell)).collect();
    let faults: Vec<_> = faults.split("=> \"").skip(1).collect();
    assert!(faults.len() > 20, "{} faults", faults.len());
    for fault in faults {
        let row = format!("torture: {}", fault.split('"').next().unwrap());
        assert!(listed.contains(row.as_str()), "{row}");
    }
}

#[test]
fn a_path_that_leads_nowhere_is_found() {
    let sources = sources(&["tests"]);
    assert!(exists(
        "golden::faults::a_path_that_leads_nowhere_is_found",
        &sources
    ));
    assert!(exists("golden::faults", &sources));
    assert!(!exists(
        "golden::faults::a_path_that_leads_somewhere",
        &sources
    ));
    assert!(!exists("golden::failures", &sources));
}
