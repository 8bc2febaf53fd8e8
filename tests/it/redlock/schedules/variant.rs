//! The scripts as they are, and the protocol without one of its guards.

use crate::lua::composed;

/// Which protocol is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Variant {
    /// As it is.
    Guarded,
    /// The highest fence of round one is granted at once.
    NoSecondRound,
    /// Round two does not look whether the counter has passed the fence.
    OwnerAlone,
    /// Round two does not look whether the try has the lock.
    CounterAlone,
    /// Half of the nodes are enough.
    Half,
    /// A node that has lost its data votes at once.
    VotesUnlearnt,
    /// Round two does not look whether somebody has learnt from the node since it has voted.
    NoEpoch,
}

/// The texts of the scripts.
pub(super) struct Scripts {
    pub(super) reserve: String,
    pub(super) ratify: String,
    pub(super) withdraw: String,
    pub(super) release: String,
    pub(super) learn: String,
    pub(super) teach: String,
    pub(super) admit: String,
}

const OF_COUNTER: &str = "if (tonumber(redis.call('GET', counter)) or 0) > tonumber(fence) then\n  return { 'overtaken', nonce }\nend\n";
const OF_OWNER: &str = "if redis.call('GET', lock) ~= token or record[1] ~= token or record[2] ~= nonce then\n  return { 'refused', nonce }\nend\n";
const OF_VOTE: &str =
    "if not vote or vote.name ~= ARGV[6] then\n  return { 'outdated', nonce }\nend\n";
const OF_LIFE: &str = "if it[1] and ours and (run == '' or it[2] == run) then";

// === impl Scripts ===

impl Scripts {
    pub(super) fn of(variant: Variant) -> Self {
        let (mut reserve, mut ratify) = (composed("reserve"), composed("ratify"));
        for guard in [OF_COUNTER, OF_OWNER, OF_VOTE, OF_LIFE] {
            assert!(ratify.contains(guard), "the guard is written otherwise");
        }
        match variant {
            Variant::NoEpoch => {
                ratify = ratify.replace(OF_VOTE, "if not vote then\n  vote = { top = 0 }\nend\n");
            }
            Variant::VotesUnlearnt => {
                for script in [&mut reserve, &mut ratify] {
                    let always = "if true then\n    it[1], top, epoch = '', 0, 0";
                    *script = script.replace(OF_LIFE, always);
                }
            }
            Variant::OwnerAlone => ratify = ratify.replace(OF_COUNTER, ""),
            Variant::CounterAlone => ratify = ratify.replace(OF_OWNER, ""),
            Variant::Guarded | Variant::NoSecondRound | Variant::Half => {}
        }
        Self {
            reserve,
            ratify,
            withdraw: composed("withdraw"),
            release: composed("quorum_release"),
            learn: composed("learn"),
            teach: composed("teach"),
            admit: composed("admit"),
        }
    }
}
