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

/// Names of mutants, each with a file that it changes.
type Mutants = BTreeSet<(String, String)>;

/// The mutants that a patch of Rust describes above the hunks of a file, and the mutants that the hunks ask for.
fn mutants_of_rust(patch: &str) -> (Mutants, Mutants) {
    let (mut described, mut asked) = (Mutants::new(), Mutants::new());
    let (mut introduced, mut file) = (Vec::new(), "");
    for line in patch.lines() {
        if let Some(changed) = line.strip_prefix("--- a/") {
            file = changed;
            described.extend(introduced.drain(..).map(|mutant| (mutant, file.to_owned())));
        } else if line.starts_with('+') {
            let names = line.split("is(\"").skip(1);
            let names = names.map(|rest| rest.split('"').next().unwrap());
            asked.extend(names.map(|mutant| (mutant.to_owned(), file.to_owned())));
        } else if line.starts_with(|first: char| first.is_ascii_lowercase()) {
            let (mutant, _what) = line.split_once(": ").unwrap();
            introduced.push(mutant.to_owned());
        }
    }
    assert!(introduced.is_empty(), "{introduced:?}");
    (described, asked)
}

/// The only store that runs this file; `None` if all stores do.
fn store_of(file: &str) -> Option<&'static str> {
    let rooms = [
        ("src/store/embedded/", "embedded"),
        ("src/store/redis/redlock/", "redlock"),
        ("src/store/redis/", "redis"),
    ];
    let found = rooms.into_iter().find(|(room, _)| file.starts_with(room));
    found.map(|(_, store)| store)
}

#[test]
fn the_patches_that_make_the_mutants_apply_to_the_sources() {
    for of in [patches("tests/mutants"), patches("tests/mutants/lua")].concat() {
        let tried = spawn::command("patch")
            .args(["--dry-run", "--batch", "--forward", "--fuzz=0", "--strip=1"])
            .args(["--directory", SOURCES])
            .args([Path::new("--input"), &of])
            .output()
            .expect("this test needs patch: apt-get install patch");
        assert!(tried.status.success(), "{}: {tried:?}", of.display());
    }
}

#[test]
fn every_mutant_has_a_patch_for_each_store_on_which_it_is_tried() {
    let script = fs::read_to_string(Path::new(SOURCES).join("scripts/mutants")).unwrap();
    let (_, table) = script.split_once("mutants=\"\n").unwrap();
    let (table, _) = table.split_once("\n\"\n").unwrap();
    let tried: BTreeSet<(String, String)> = table
        .lines()
        .map(|line| {
            let mut words = line.split(' ').map(str::to_owned);
            (words.next().unwrap(), words.next().unwrap())
        })
        .collect();
    let mut patched = Mutants::new();
    for of in patches("tests/mutants/lua") {
        let mutant = of.file_stem().unwrap().to_str().unwrap();
        let text = fs::read_to_string(&of).unwrap();
        let files = text.lines().filter_map(|line| line.strip_prefix("--- a/"));
        patched.extend(files.map(|file| (mutant.to_owned(), file.to_owned())));
    }
    for of in patches("tests/mutants") {
        let (described, asked) = mutants_of_rust(&fs::read_to_string(&of).unwrap());
        assert_eq!(described, asked, "{}", of.display());
        patched.extend(asked);
    }
    let patched = patched.into_iter().flat_map(|(mutant, file)| {
        let stores: Vec<_> = match store_of(&file) {
            Some(store) => vec![store.to_owned()],
            // The file is part of the program on every store, so one patch is enough for all of them.
            None if tried.iter().any(|(name, _)| *name == mutant) => {
                let tried = tried.iter().filter(|(name, _)| *name == mutant);
                tried.map(|(_, store)| store.clone()).collect()
            }
            None => vec!["some store".to_owned()],
        };
        stores.into_iter().map(move |store| (mutant.clone(), store))
    });
    assert_eq!(tried, patched.collect());
}

#[test]
fn every_script_that_a_mutant_changes_is_in_a_folder_that_mutants_read() {
    let patch = Path::new(SOURCES).join("tests/mutants/choice.patch");
    let choice = fs::read_to_string(patch).unwrap();
    for of in patches("tests/mutants/lua") {
        let text = fs::read_to_string(&of).unwrap();
        for file in text.lines().filter_map(|line| line.strip_prefix("--- a/")) {
            let (room, _) = file.rsplit_once('/').unwrap();
            let room = room.strip_prefix("src/store/redis/");
            let is_read = room.is_some_and(|room| choice.contains(&format!("\"{room}\",")));
            assert!(is_read, "{}: {file}", of.display());
        }
    }
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
