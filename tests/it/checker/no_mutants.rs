//! The known-wrong variants are in no program that was not built for them.
#![cfg(not(feature = "mutants"))]

use serde_json::json;

use crate::support::{
    Caller,
    gateway::{Gateway, Setup},
};

/// What chooses a variant where there are any.
const CHOOSES: &str = "MUTANT_OF_LATCHGATE";

#[test]
fn the_program_does_not_know_what_would_choose_one() {
    let program = std::fs::read(env!("CARGO_BIN_EXE_latchgate")).unwrap();
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
