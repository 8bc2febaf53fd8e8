//! Failures of the disk, the process or the power at any step: every answer stays true afterwards.

use std::collections::HashSet;

use crate::{
    lock::HeldLease,
    store::{
        Store, StoreError,
        contract::{Acquisition, Attempt, Confirmation, Health, Holder, Release, Renewal},
    },
};

use super::{
    disk::Fault,
    rig::{LONG, Random, Rig, assert_distinct_slots, attempt, key, keyed, one_of, share, with},
};

/// The answers that callers were given so far.
#[derive(Default)]
struct Told {
    held: Vec<(Attempt, HeldLease)>,
    /// Attempts that were released or refused.
    gone: Vec<Attempt>,
    /// Attempts whose acquire or release had an unknown outcome.
    unknown: Vec<Attempt>,
    last_fence: u64,
}

// === impl Told ===

impl Told {
    async fn acquire(&mut self, rig: &Rig, wanted: Attempt) {
        let is_alone = wanted.terms.sharing.is_none();
        let has_name = |it: &Attempt| it.name == wanted.name;
        let is_held = self.held.iter().any(|(it, _)| has_name(it));
        match rig.store().acquire(&wanted).await {
            Ok(Acquisition::Granted(held)) => {
                assert!(!(is_alone && is_held), "{} is held twice", wanted.name);
                assert!(held.fence.get() > self.last_fence, "{held:?}");
                self.last_fence = held.fence.get();
                self.held.push((wanted, held));
            }
            Ok(Acquisition::Held(_)) => {
                let may_be_held = is_held || self.unknown.iter().any(has_name);
                assert!(may_be_held, "{} was free", wanted.name);
                self.gone.push(wanted);
            }
            Ok(other) => panic!("neither granted nor held: {other:?}"),
            Err(StoreError::Indeterminate(_)) => self.unknown.push(wanted),
            Err(_nothing_happened) => self.gone.push(wanted),
        }
    }

    async fn release(&mut self, rig: &Rig, at: usize) {
        let (holder, held) = self.held.remove(at);
        match rig.store().release(&holder.name, &holder.token).await {
            Ok(Release::Released(_)) => self.gone.push(holder),
            Ok(lost @ (Release::Adopted(_) | Release::Lost(_))) => panic!("was lost: {lost:?}"),
            Err(StoreError::Indeterminate(_)) => self.unknown.push(holder),
            Err(_nothing_happened) => self.held.push((holder, held)),
        }
    }

    async fn renew(&self, rig: &Rig, at: usize) {
        rig.clock.advance(std::time::Duration::from_millis(1));
        let (holder, _) = &self.held[at];
        let renewed = rig.store().renew(&holder.name, &holder.token, None).await;
        let lost = matches!(renewed, Ok(Renewal::Lost(_) | Renewal::Adopted));
        assert!(!lost, "{renewed:?}");
    }

    /// Releases the attempts with an unknown outcome: after an answered release an attempt holds nothing.
    async fn settle(&mut self, rig: &Rig) {
        for unknown in std::mem::take(&mut self.unknown) {
            match rig.store().release(&unknown.name, &unknown.token).await {
                Ok(_) => self.gone.push(unknown),
                Err(_) => self.unknown.push(unknown),
            }
        }
    }

    /// Sends one command, for a shared lock or for one of many exclusive locks.
    async fn one_command(&mut self, rig: &Rig, turn: usize) {
        let at = turn % self.held.len().max(1);
        match turn % 7 {
            0 | 1 if self.held.len() > 4 => self.release(rig, at).await,
            2 if !self.held.is_empty() => self.renew(rig, at).await,
            3 if !self.unknown.is_empty() => self.settle(rig).await,
            4 => self.acquire(rig, one_of(5, "lock", LONG)).await,
            5 => {
                let reader = with(keyed("lock", LONG, key()), |it| {
                    it.sharing = Some(share(None));
                });
                self.acquire(rig, reader).await;
            }
            _ => {
                let lock = format!("lock:{}", turn % 23);
                self.acquire(rig, attempt(&lock, LONG)).await;
            }
        }
    }

    /// Sends commands until the disk fails, for long enough to fill several log files. Returns whether the disk has
    /// failed.
    async fn until_it_fails(&mut self, rig: &Rig) -> bool {
        for turn in 0..160 {
            self.one_command(rig, turn).await;
            if rig.health().await != Health::Passing {
                return true;
            }
        }
        false
    }

    async fn is_true(&self, rig: &Rig, context: &str) {
        for (holder, told) in &self.held {
            match rig.store().confirm(&holder.name, &holder.token).await {
                Ok(Confirmation::Confirmed(kept)) => {
                    let told = (told.fence, told.mode);
                    assert_eq!((kept.fence, kept.mode), told, "{context}");
                }
                other => panic!("{context}: {} was lost: {other:?}", holder.name),
            }
        }
        for gone in &self.gone {
            let confirmed = rig.store().confirm(&gone.name, &gone.token).await;
            assert_eq!(confirmed, Ok(Confirmation::Lost), "{context}: came back");
        }
        let held = self.held.iter().map(|(it, _)| &it.name);
        let names: HashSet<_> = held
            .clone()
            .chain(self.gone.iter().map(|it| &it.name))
            .collect();
        for name in names {
            let holder = rig.shown(name.as_str()).await.holder;
            let leases = holder.as_ref().map_or(&[][..], Holder::leases);
            let least = held.clone().filter(|it| *it == name).count();
            let most = least + self.unknown.iter().filter(|it| it.name == *name).count();
            let count = leases.len();
            assert!(
                (least..=most).contains(&count),
                "{context}: {name}: {count}"
            );
            assert_distinct_slots(leases);
        }
    }
}

#[tokio::test]
async fn whatever_fails_at_any_step_what_was_answered_is_true() {
    let kinds: [fn(usize) -> Fault; 3] = [Fault::DiesAfter, Fault::SyncLosesAfter, Fault::Full];
    for kind in kinds {
        let (mut steps, mut unknown) = (0, 0);
        for step in 0.. {
            let context = format!("{:?}", kind(step));
            let (mut rig, mut told) = (Rig::start(), Told::default());
            rig.disk.fail(kind(step));
            let failed = told.until_it_fails(&rig).await;
            unknown += told.unknown.len();
            match step % 24 {
                0 => {
                    rig.disk.fail(Fault::None);
                    // Waits until the store has tried the failed disk again.
                    rig.writes_again().await;
                    told.is_true(&rig, &context).await;
                }
                kill if kill % 2 == 0 => {
                    // The process is killed and started again in the same boot. Then the power fails.
                    rig.kill().await;
                    told.is_true(&rig, &context).await;
                    told.acquire(&rig, attempt("later", LONG)).await;
                }
                _ => {}
            }
            rig.lose_power().await;
            told.is_true(&rig, &context).await;
            assert!(rig.writes_again().await.fence.get() > told.last_fence);
            if !failed {
                steps = step;
                break;
            }
        }
        assert!(steps > 100, "{steps} steps are no whole run");
        // A full disk is reported before anything is written; only putting a new file in place can have an
        // unknown outcome.
        let full = matches!(kind(0), Fault::Full(_));
        let most = if full { steps / 50 } else { steps };
        assert!(unknown <= most, "{unknown} of {steps} answers left it open");
        assert!(full || unknown > 0, "no write failed");
    }
}

#[tokio::test]
async fn whatever_was_answered_is_true_after_random_faults_and_losses_of_power() {
    for seed in 1..=12_u64 {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let (mut rig, mut told) = (Rig::start(), Told::default());
        for step in 0..120 {
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
                    assert!(fence > told.last_fence, "seed {seed}, step {step}");
                    told.last_fence = fence;
                }
                _ => {}
            }
            told.one_command(&rig, random.below(1_000)).await;
        }
        rig.disk.fail(Fault::None);
        rig.writes_again().await;
        if random.below(2) == 0 {
            rig.lose_power().await;
        }
        told.is_true(&rig, &format!("seed {seed}")).await;
    }
}

fn fault(random: &mut Random) -> Fault {
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
