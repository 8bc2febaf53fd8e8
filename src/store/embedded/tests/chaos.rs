//! Random commands under random faults and losses of power: whatever was answered is true.

use std::collections::HashMap;

use super::{
    disk::Fault,
    rig::{Rig, attempt},
};
use crate::store::{
    Store, StoreError,
    contract::{Acquisition, Attempt, Release},
};

/// Longer than any run: nothing expires, so that every lease is accounted for.
const LONG: u64 = 86_400_000;
const LOCKS: usize = 6;

/// What the callers were told of one lock.
#[derive(Debug, Clone)]
enum Told {
    Free,
    Held(Box<Attempt>),
    /// An acquire or a release of this attempt has an unknown outcome.
    Unknown(Box<Attempt>),
}

#[tokio::test]
async fn whatever_was_answered_is_true() {
    for seed in 1..=12 {
        run(seed).await;
    }
}

async fn run(seed: u64) {
    let mut random = Xorshift(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut rig = Rig::start();
    let mut told: HashMap<String, Told> = HashMap::new();
    let mut last_fence = 0;
    for step in 0..120 {
        let context = format!("seed {seed}, step {step}, {:?}", rig.disk.fault());
        match random.below(12) {
            0 => rig.disk.fail(fault(&mut random)),
            1 => match random.below(3) {
                0 => rig.lose_power().await,
                1 => rig.kill().await,
                _ => {}
            },
            2 => {
                rig.disk.fail(Fault::None);
                let fence = rig.writes_again().await.fence.get();
                assert!(fence > last_fence, "{context}");
                last_fence = fence;
            }
            _ => {}
        }
        let lock = format!("lock:{}", random.below(LOCKS));
        let before = told.get(&lock).cloned().unwrap_or(Told::Free);
        let after = one_command(&rig, &lock, before, &mut last_fence, &context).await;
        told.insert(lock, after);
    }
    rig.disk.fail(Fault::None);
    rig.writes_again().await;
    if random.below(2) == 0 {
        rig.lose_power().await;
    }
    for (lock, told) in &told {
        let is_free = rig.is_free(lock).await;
        match told {
            Told::Free => assert!(is_free, "seed {seed}: {lock} was free"),
            Told::Held(_) => assert!(!is_free, "seed {seed}: {lock} was held"),
            Told::Unknown(_) => {}
        }
    }
}

async fn one_command(
    rig: &Rig,
    lock: &str,
    before: Told,
    last_fence: &mut u64,
    context: &str,
) -> Told {
    match before {
        Told::Held(holder) => match rig.store().release(&holder.name, &holder.token).await {
            Ok(Release::Released) => Told::Free,
            Ok(lost @ (Release::Adopted | Release::Lost(_))) => {
                panic!("{context}: a lease was lost: {lost:?}")
            }
            Err(StoreError::Indeterminate(_)) => Told::Unknown(holder),
            Err(_nothing_happened) => Told::Held(holder),
        },
        Told::Unknown(attempt) => {
            // Whatever it was, after a release that is answered the lock is free.
            match rig.store().release(&attempt.name, &attempt.token).await {
                Ok(_) => Told::Free,
                Err(_) => Told::Unknown(attempt),
            }
        }
        Told::Free => {
            let attempt = Box::new(attempt(lock, LONG));
            match rig.store().acquire(&attempt).await {
                Ok(Acquisition::Granted(held)) => {
                    assert!(held.fence.get() > *last_fence, "{context}");
                    *last_fence = held.fence.get();
                    Told::Held(attempt)
                }
                Ok(other) => panic!("{context}: {lock} was free: {other:?}"),
                Err(StoreError::Indeterminate(_)) => Told::Unknown(attempt),
                Err(_nothing_happened) => Told::Free,
            }
        }
    }
}

fn fault(random: &mut Xorshift) -> Fault {
    match random.below(9) {
        0 => Fault::Full(random.below(30)),
        7 => Fault::DiesAfter(1 + random.below(9)),
        8 => Fault::SyncLosesAfter(random.below(5)),
        1 => Fault::ReadOnly,
        2 => Fault::Dead,
        3 => Fault::SyncLands(1 + random.below(3)),
        4 | 5 => Fault::SyncLoses(1 + random.below(3)),
        _ => Fault::None,
    }
}

struct Xorshift(u64);

// === impl Xorshift ===

impl Xorshift {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % bound as u64).unwrap()
    }
}
