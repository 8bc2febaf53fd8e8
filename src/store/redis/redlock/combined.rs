//! What the answers of single nodes amount to, where it is the same for several operations.

use crate::store::{StoreError, Uncertainty, contract::Loss};

use super::node_replies::NodeReplies;

/// How a lease was lost, if a majority of the nodes does not have it.
pub(super) fn loss(losses: &[Loss], majority: usize) -> Option<Loss> {
    if losses.len() < majority {
        return None;
    }
    let held = losses.iter().filter(|loss| is_held(**loss));
    // Fewer are those who only try.
    let held = held.count() >= majority;
    let broken = losses
        .iter()
        .any(|loss| matches!(loss, Loss::Broken { .. }));
    Some(match (broken, held) {
        (true, held) => Loss::Broken { held },
        (false, true) => Loss::HeldByAnother,
        (false, false) => Loss::Free,
    })
}

/// Whether [`loss`] says the same whatever the nodes answer that have not.
pub(super) fn is_decided(losses: &[Loss], majority: usize, nodes: usize) -> bool {
    let held = losses.iter().filter(|loss| is_held(**loss)).count();
    losses.len() >= majority && (held >= majority || held + nodes - losses.len() < majority)
}

fn is_held(loss: Loss) -> bool {
    match loss {
        Loss::HeldByAnother => true,
        Loss::Broken { held } => held,
        Loss::Free => false,
    }
}

/// What is known where no majority has said the same. `partly`: some node has done it.
pub(super) fn unknown<T>(
    answers: &NodeReplies<Result<T, StoreError>>,
    majority: usize,
    partly: bool,
    describe: impl Fn(usize, &StoreError) -> StoreError,
) -> StoreError {
    let errors = || answers.iter().filter_map(|answer| answer.as_ref().err());
    let foreign = errors().find(|error| matches!(error, StoreError::ForeignData { .. }));
    if let Some(foreign) = foreign {
        return foreign.clone();
    }
    let uncertain = errors().find_map(|error| match error {
        StoreError::Indeterminate(why) => Some(why.clone()),
        _ => None,
    });
    let answered = answers.count(Result::is_ok);
    match (uncertain, errors().next()) {
        (Some(why), _) => why.into(),
        (None, Some(error)) if !partly && answered < majority => {
            describe(answers.nodes() - answered, error)
        }
        // Some nodes have, some have not, and the others do not answer.
        _ => Uncertainty::TimedOut.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_is_settled_when_no_other_answer_can_change_it() {
        let (free, held) = (Loss::Free, Loss::HeldByAnother);
        assert!(!is_decided(&[free], 2, 3));
        assert!(is_decided(&[free, free], 2, 3));
        assert!(is_decided(&[held, held], 2, 3));
        assert!(!is_decided(&[free, held], 2, 3));
        assert!(is_decided(&[free, held, free], 2, 3));
        assert!(!is_decided(&[free, free, held], 3, 5));
        assert!(is_decided(&[free, free, free], 3, 5));
    }

    #[test]
    fn a_lease_is_lost_where_a_majority_does_not_have_it() {
        let (free, held) = (Loss::Free, Loss::HeldByAnother);
        assert_eq!(loss(&[free], 2), None);
        assert_eq!(loss(&[free, free, held], 2), Some(free));
        assert_eq!(loss(&[free, held, held], 2), Some(held));
        let broken = |held| Loss::Broken { held };
        assert_eq!(loss(&[broken(false), free], 2), Some(broken(false)));
        assert_eq!(loss(&[broken(true), held], 2), Some(broken(true)));
        assert_eq!(loss(&[broken(true), free, free], 2), Some(broken(false)));
    }
}
