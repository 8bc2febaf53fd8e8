//! Mutants are made of patched sources: every patch applies, and the program itself has none.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use crate::support::spawn;

const SOURCES: &str = env!("CARGO_MANIFEST_DIR");

fn patches(directory: &str) -> Vec<PathBuf> {
    let files = fs::read_dir(Path::new(SOURCES).join(directory)).unwrap();
    let files = files.map(|it| it.unwrap().path());
    files
        .filter(|it| it.extension().is_some_and(|end| end == "patch"))
        .collect()
}

#[test]
fn the_patches_that_make_the_mutants_apply_to_the_sources() {
    for of in [patches("tests/mutants"), patches("tests/mutants/lua")].concat() {
        let tried = spawn::command("patch")
            .args(["--dry-run", "--batch", "--forward", "--strip=1"])
            .args(["--directory", SOURCES])
            .args([Path::new("--input"), &of])
            .output()
            .expect("this test needs patch: apt-get install patch");
        assert!(tried.status.success(), "{}: {tried:?}", of.display());
    }
}

#[test]
fn every_mutant_has_a_patch_and_is_tried() {
    let script = fs::read_to_string(Path::new(SOURCES).join("scripts/mutants")).unwrap();
    let (_, table) = script.split_once("variants=\"\n").unwrap();
    let (table, _) = table.split_once("\n\"\n").unwrap();
    let tried: BTreeSet<_> = table
        .lines()
        .map(|line| line.split(' ').next().unwrap().to_owned())
        .collect();
    let lua = patches("tests/mutants/lua");
    let mut patched: BTreeSet<_> = lua
        .iter()
        .map(|of| of.file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    for of in patches("tests/mutants") {
        let text = fs::read_to_string(of).unwrap();
        let (introduction, hunks) = text.split_once("--- ").unwrap();
        for (mutant, _what) in introduction.lines().filter_map(|it| it.split_once(": ")) {
            assert!(hunks.contains(&format!("\"{mutant}\"")), "{mutant}");
            patched.insert(mutant.to_owned());
        }
    }
    assert_eq!(tried, patched);
}

#[test]
fn the_program_does_not_know_what_would_choose_one() {
    let program = fs::read(env!("CARGO_BIN_EXE_latchgate")).unwrap();
    let knows = |text: &str| {
        let mut places = program.windows(text.len());
        places.any(|place| place == text.as_bytes())
    };
    assert!(
        knows("LATCHGATE_STORE"),
        "this is how a name would be found"
    );
    assert!(!knows("MUTANT_OF_LATCHGATE"));
}
