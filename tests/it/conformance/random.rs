//! Random sequences of commands. Each answer is compared with the model.

use super::model::Model;
use crate::conformance::prelude::*;

/// How many commands one sequence has.
const COMMANDS: usize = 1_500;
const NAMES: [&str; 3] = ["a", "b", "c"];

pub(super) async fn sequences_behave_like_the_model(fixture: &dyn Fixture) {
    let mut random = Random::seeded();
    let mut model = Model::new(fixture.withdraws_what_was_released());
    let mut keys: Vec<IdempotencyHash> = (0..3).map(|_| key()).collect();
    let mut attempts = vec![attempt("a", LONG)];
    let mut history = Vec::new();
    for _ in 0..COMMANDS {
        if random.below(300) == 0 {
            fixture.restart().await;
            history.push("restart".to_owned());
        }
        if random.below(20) == 0 {
            let slot = random.below(keys.len());
            keys[slot] = key();
        }
        if random.below(3) == 0 {
            attempts.push(new_attempt(&mut random, &keys));
        }
        let recent = attempts.len().min(12);
        let attempt = attempts[attempts.len() - 1 - random.below(recent)].clone();
        let (right, told) = one_command(fixture, &mut random, &mut model, &attempt).await;
        history.push(told);
        assert!(
            right,
            "the last answer is wrong, {}:\n{}",
            random.how_to_repeat(),
            history.join("\n")
        );
    }
}

/// Whether the answer was right, and its text.
async fn one_command(
    fixture: &dyn Fixture,
    random: &mut Random,
    model: &mut Model,
    attempt: &Attempt,
) -> (bool, String) {
    let store = fixture.store();
    let Attempt { name, .. } = attempt;
    let token = &a_token(random, attempt);
    match random.below(10) {
        0..4 => {
            let answer = store.acquire(attempt).await;
            let right = model.acquired(attempt, &answer);
            (right, format!("acquire {attempt:?} -> {answer:?}"))
        }
        4 => {
            let answer = store.renew(name, token, Some(ttl(LONG))).await.unwrap();
            let right = model.renewed(name, token, &answer);
            (right, format!("renew {name} {token} -> {answer:?}"))
        }
        5..8 => {
            let answer = store.release(name, token).await.unwrap();
            let right = model.released(name, token, &answer);
            (right, format!("release {name} {token} -> {answer:?}"))
        }
        8 => {
            let answer = store.give_back(name, token, None).await.unwrap();
            let right = model.given_back(name, token, answer);
            (right, format!("give_back {name} {token} -> {answer:?}"))
        }
        _ => {
            let answer = store.inspect(name).await.unwrap();
            let right = model.inspected(name, &answer);
            (right, format!("inspect {name} -> {answer:?}"))
        }
    }
}

fn new_attempt(random: &mut Random, keys: &[IdempotencyHash]) -> Attempt {
    let lock = NAMES[random.below(NAMES.len())];
    match random.below(5) {
        0..2 => attempt(lock, LONG),
        // The key is sometimes repeated with a request that differs.
        2 => keyed(
            lock,
            LONG + 1,
            for_name(keys[random.below(keys.len())], lock),
        ),
        _ => keyed(lock, LONG, for_name(keys[random.below(keys.len())], lock)),
    }
}

/// The hash of an idempotency key covers the name, so the same key has different hashes for different names.
fn for_name(key: IdempotencyHash, lock: &str) -> IdempotencyHash {
    let mut bytes = *key.as_bytes();
    bytes[0] = lock.as_bytes()[0];
    IdempotencyHash::from_bytes(bytes)
}

fn a_token(random: &mut Random, attempt: &Attempt) -> TokenHash {
    if random.below(10) == 0 {
        token()
    } else {
        attempt.token
    }
}
