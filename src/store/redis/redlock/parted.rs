//! What has ended a lease that was released, by what the nodes say.

use crate::store::{
    StoreError,
    contract::{Loss, Release},
};

use super::{
    answers::Answers,
    calls::Parting,
    combined::{is_settled, loss},
};

/// How many nodes say what of a lease that was to be released.
///
/// A break may come at the same time, and each node lets one of both end the lease. A break is told that
/// it has if it did at a majority; so a release is told so where no break can have.
#[derive(Debug, Default)]
pub(super) struct Parted {
    nodes: usize,
    answered: usize,
    pub(super) released: usize,
    broken: usize,
    adopted: usize,
    /// How it was lost where it was not there, or was broken.
    losses: Vec<Loss>,
}

// === impl Parted ===

impl Parted {
    pub(super) fn of(answers: &Answers<Result<Parting, StoreError>>) -> Self {
        let mut parted = Self {
            nodes: answers.nodes(),
            ..Self::default()
        };
        for parting in answers.iter().flatten() {
            parted.answered += 1;
            match parting {
                Parting::Released => parted.released += 1,
                Parting::Adopted => parted.adopted += 1,
                Parting::Broken { held } => {
                    parted.broken += 1;
                    parted.losses.push(Loss::Broken { held: *held });
                }
                Parting::Lost(loss) => parted.losses.push(*loss),
            }
        }
        parted
    }

    /// What the caller is told, if the nodes that have not answered may say what they like.
    pub(super) fn outcome(&self, majority: usize) -> Option<Release> {
        let (released, losses) = (self.released, self.losses.len());
        let silent = self.nodes - self.answered;
        if self.adopted >= majority
            || (self.adopted > 0 && released == 0 && self.adopted + losses >= majority)
        {
            return Some(Release::Adopted);
        }
        // Broken by a majority, or not at one any more when this came.
        if self.broken >= majority || losses - self.broken >= majority {
            return loss(&self.losses, majority).map(Release::Lost);
        }
        // Gone from a majority, it cannot be renewed any more.
        let gone = released > 0 && released + losses >= majority;
        (gone && self.broken + silent < majority).then_some(Release::Released)
    }

    /// The same where nobody is waited for any more. What no node has released is lost to its holder,
    /// whether or not it was a break.
    pub(super) fn at_last(&self, majority: usize) -> Option<Release> {
        let lost = || loss(&self.losses, majority).filter(|_| self.released == 0);
        self.outcome(majority).or_else(|| lost().map(Release::Lost))
    }

    /// Whether no other answer can change what is told, or none of those that are missing is worth waiting for.
    pub(super) fn is_settled(&self, majority: usize) -> bool {
        match self.outcome(majority) {
            Some(Release::Lost(_)) => is_settled(&self.losses, majority, self.nodes),
            Some(Release::Released | Release::Adopted) => true,
            // Where a keeper has adopted it nothing has ended that it keeps.
            None => self.answered >= majority && self.broken == 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FREE: Parting = Parting::Lost(Loss::Free);
    const BROKEN: Parting = Parting::Broken { held: false };

    fn parted<const N: usize>(said: [Option<Parting>; N]) -> Parted {
        let mut answers = Answers::none(N);
        for (node, parting) in said.into_iter().enumerate() {
            if let Some(parting) = parting {
                answers.put(node, Ok(parting));
            }
        }
        Parted::of(&answers)
    }

    fn outcome<const N: usize>(said: [Option<Parting>; N]) -> Option<Release> {
        parted(said).outcome(N / 2 + 1)
    }

    #[test]
    fn what_no_majority_of_breaks_can_have_ended_was_released() {
        let (released, free) = (|| Some(Parting::Released), || Some(FREE));
        let broken = || Some(BROKEN);
        let told = Some(Release::Released);
        assert_eq!(outcome([released(), released(), None]), told);
        assert_eq!(outcome([released(), free(), None]), told);
        assert_eq!(outcome([released(), broken(), free()]), told);
        assert_eq!(outcome([released(), broken(), released()]), told);
        // The one that is missing may have been broken too.
        assert_eq!(outcome([released(), broken(), None]), None);
        assert_eq!(
            outcome([released(), released(), broken(), None, None]),
            None
        );
        let lost = Some(Release::Lost(Loss::Broken { held: false }));
        assert_eq!(outcome([released(), broken(), broken()]), lost);
    }

    #[test]
    fn what_a_majority_did_not_have_was_lost_before() {
        let lost = Some(Release::Lost(Loss::Free));
        let said = [Some(Parting::Released), Some(FREE), Some(FREE)];
        assert_eq!(outcome(said), lost);
        assert_eq!(outcome([Some(FREE), Some(FREE), None]), lost);
    }

    #[test]
    fn a_break_at_a_minority_is_waited_for_and_then_a_loss_all_the_same() {
        let said = parted([Some(BROKEN), Some(FREE), None]);
        assert!(!said.is_settled(2));
        let lost = Release::Lost(Loss::Broken { held: false });
        assert_eq!(said.at_last(2), Some(lost));
        let said = parted([Some(BROKEN), Some(Parting::Released), None]);
        assert!(!said.is_settled(2));
        assert_eq!(said.at_last(2), None);
    }
}
