//! Asks all sentinels at once who the master is.

use tokio::time::{Duration, Instant};

use crate::{config::RedisNode, store::Unavailability};

use super::{
    super::ask_many::{ask_many, majority},
    sentinel::{Named, Sentinel},
};

/// What the sentinels have answered.
#[derive(Debug)]
pub(super) struct SentinelReplies {
    /// Who was named: the latest word first, and of equals the one that more have given.
    pub(super) candidates: Vec<Candidate>,
    /// Why a sentinel named nobody, if one did.
    pub(super) last_error: Option<Unavailability>,
}

/// A server that was named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) node: RedisNode,
    pub(super) epoch: u64,
    /// By how many.
    pub(super) by: usize,
}

/// How long the others are waited for when more than half have answered: one of them may have seen the
/// master change a moment ago.
const GRACE: Duration = Duration::from_millis(50);

/// Asks all sentinels at once.
pub(super) async fn ask(
    sentinels: &[Sentinel],
    service: &str,
    timeout: Duration,
) -> SentinelReplies {
    let limit = Instant::now() + timeout;
    let questions = sentinels.iter().map(async |sentinel| {
        let answer = sentinel.ask(service, limit).await;
        let at = |why: Unavailability| why.at(format_args!("sentinel {}", sentinel.node()));
        answer.map_err(at)
    });
    let (mut named, mut last_error) = (Vec::new(), None);
    let take = |answer| {
        match answer {
            Ok(answer) => named.push(answer),
            Err(why) => last_error = Some(worse(last_error.take(), why)),
        }
        (named.len() >= majority(sentinels.len())).then_some(GRACE)
    };
    ask_many(questions, Some(limit), take).await;
    SentinelReplies {
        candidates: rank(named),
        last_error,
    }
}

fn rank(named: Vec<Named>) -> Vec<Candidate> {
    let mut candidates: Vec<Candidate> = Vec::new();
    for Named { node, epoch } in named {
        match candidates
            .iter_mut()
            .find(|candidate| candidate.node == node)
        {
            Some(candidate) => {
                candidate.by += 1;
                candidate.epoch = candidate.epoch.max(epoch);
            }
            None => candidates.push(Candidate { node, epoch, by: 1 }),
        }
    }
    candidates.sort_by_key(|candidate| std::cmp::Reverse((candidate.epoch, candidate.by)));
    candidates
}

/// What is told if there is more than one reason. While one of them may be about to pass, it is not the
/// configuration that is wrong.
fn worse(before: Option<Unavailability>, now: Unavailability) -> Unavailability {
    match before {
        Some(before) if !matches!(before, Unavailability::Misconfigured(_)) => before,
        Some(_) | None => now,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(port: u16, epoch: u64) -> Named {
        Named {
            node: RedisNode::new("h", port),
            epoch,
        }
    }

    #[test]
    fn the_latest_word_counts_and_of_equals_that_of_most() {
        let ports = |named: Vec<Named>| -> Vec<u16> {
            let ranked = rank(named).into_iter();
            ranked.map(|candidate| candidate.node.port()).collect()
        };
        // One sentinel has seen the failover, the others not yet.
        assert_eq!(ports(vec![named(1, 4), named(1, 4), named(2, 5)]), [2, 1]);
        assert_eq!(ports(vec![named(1, 0), named(2, 0), named(2, 0)]), [2, 1]);
        let by = |named: Vec<Named>| rank(named)[0].by;
        assert_eq!(by(vec![named(1, 4), named(1, 3), named(2, 1)]), 2);
    }

    #[test]
    fn what_may_pass_is_told_before_what_is_configured() {
        let wrong = || Unavailability::Misconfigured("m".to_owned());
        let away = || Unavailability::Connect("c".to_owned());
        assert_eq!(worse(None, wrong()), wrong());
        assert_eq!(worse(Some(wrong()), away()), away());
        assert_eq!(worse(Some(away()), wrong()), away());
    }
}
