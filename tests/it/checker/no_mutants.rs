//! The known-wrong variants are in no program that was not built for them, and can be built.
#![cfg(not(feature = "mutants"))]

use std::{fs, path::Path};

use serde_json::json;

use crate::support::{
    Caller,
    gateway::{Gateway, Setup},
    spawn,
};

/// What chooses a variant where there are any.
const CHOOSES: &str = "MUTANT_OF_LATCHGATE";

#[test]
fn the_patches_that_make_the_variants_apply_to_the_sources() {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR"));
    let patches = sources.join("tests/mutants");
    let patches = fs::read_dir(patches).unwrap().map(|it| it.unwrap().path());
    for of in patches {
        let tried = spawn::command("patch")
            .args(["--dry-run", "--batch", "--forward", "--strip=1"])
            .args([Path::new("--directory"), sources, Path::new("--input"), &of])
            .output()
            .expect("this test needs patch: apt-get install patch");
        assert!(tried.status.success(), "{}: {tried:?}", of.display());
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
    assert!(!knows(CHOOSES));
}

#[tokio::test]
async fn the_program_is_right_whatever_the_environment_chooses() {
    let gateway = Gateway::start_with(Setup::default().with(CHOOSES, "no-nx"));
    let mut caller = Caller::connect(gateway.address).await;
    let (first, _) = caller.acquire("a", &json!({})).await;
    let (second, _) = caller.acquire("a", &json!({})).await;
    assert_eq!((first, second), (201, 423));
}
