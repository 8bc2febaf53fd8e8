//! The scripts without changes, and the protocol without one of its guards.

use std::collections::HashMap;

use crate::lua::composed;

/// A variant of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Variant {
    /// The protocol with all guards.
    Guarded,
    /// The highest fencing token of the first round is granted at once.
    NoSecondRound,
    /// The second round does not check whether the counter has passed the fencing token.
    OwnerAlone,
    /// The second round does not check whether the try still has its reservation.
    CounterAlone,
    /// Half of the nodes count as a majority.
    Half,
    /// A node that has lost its data votes at once.
    VotesUnlearnt,
    /// The second round does not check whether another node has learned from this node since its vote.
    NoEpoch,
}

/// The text of each script.
pub(super) type Texts = HashMap<&'static str, String>;

const OF_COUNTER: &str = "if (tonumber(redis.call('GET', counter)) or 0) > tonumber(fence) then\n  return { 'overtaken', nonce }\nend\n";
const OF_OWNER: &str = "if redis.call('GET', lock) ~= token or record[1] ~= token or record[2] ~= nonce then\n  return { 'refused', nonce }\nend\n";
const OF_VOTE: &str =
    "if not vote or vote.name ~= ARGV[6] then\n  return { 'outdated', nonce }\nend\n";
const OF_LIFE: &str = "if it[1] and ours and (run == '' or it[2] == run) then";

pub(super) fn texts(variant: Variant) -> Texts {
    let names = [
        "reserve",
        "ratify",
        "withdraw",
        "quorum_release",
        "learn",
        "teach",
        "admit",
    ];
    let mut texts: Texts = names.map(|name| (name, composed(name))).into();
    for guard in [OF_COUNTER, OF_OWNER, OF_VOTE, OF_LIFE] {
        assert!(
            texts["ratify"].contains(guard),
            "the guard is written otherwise"
        );
    }
    let mut replace = |script: &'static str, guard: &str, by: &str| {
        let text = texts[script].replace(guard, by);
        texts.insert(script, text);
    };
    match variant {
        Variant::NoEpoch => {
            replace(
                "ratify",
                OF_VOTE,
                "if not vote then\n  vote = { top = 0 }\nend\n",
            );
        }
        Variant::VotesUnlearnt => {
            for script in ["reserve", "ratify"] {
                let always = "if true then\n    it[1], top, epoch = '', 0, 0";
                replace(script, OF_LIFE, always);
            }
        }
        Variant::OwnerAlone => replace("ratify", OF_COUNTER, ""),
        Variant::CounterAlone => replace("ratify", OF_OWNER, ""),
        Variant::Guarded | Variant::NoSecondRound | Variant::Half => {}
    }
    texts
}
