//! The variants of the Lua scripts, as replacements in their text.

use super::Mutant;

/// What is replaced by what, in every script that has it.
fn replacements(mutant: Mutant) -> &'static [(&'static str, &'static str)] {
    match mutant {
        Mutant::NoNx => &[(
            "if not held and redis.call('EXISTS', lock, info, ended, queue, waiters) == 0 then",
            "if true then",
        )],
        Mutant::ReleaseWithoutOwnerCheck => &[(
            "local record, layout = read_record(info, 'idem', 'keeper')",
            "held = held and token\nlocal record, layout = read_record(info, 'idem', 'keeper')",
        )],
        Mutant::TtlInSeconds => &[(
            "redis.call('SET', lock, token, 'PXAT', expiry_text)",
            "redis.call('SET', lock, token, 'PX', math.ceil((provisional or waiter.ttl) / 1000))",
        )],
        Mutant::RenewResurrects => &[(
            "  if remembers(ended, 'b:' .. token, instants(redis.call('TIME'))) then\n    return { 'broken', token, held and 1 or 0 }",
            "  if not held then\n    redis.call('SET', lock, token, 'PX', 2500)\n    \
             return { 'renewed', token, news, 1, 2500, 2500, 0, -1, '', '' }",
        )],
        Mutant::PlainCounter => &[(
            "math.max((tonumber(last) or 0) + 1, us, floor + 1)",
            "(tonumber(last) or 0) + 1",
        )],
        Mutant::TextFence => &[(
            "local fence_text = string.format('%.0f', fence)",
            "local fence_text = tostring(fence)",
        )],
        Mutant::Barging => &[
            (
                "redis.call('DEL', lock, info)\nhand_over(now, us, false)",
                "redis.call('DEL', lock, info)\nnews[#news + 1] = { 'passed', 20 }",
            ),
            (
                "redis.call('EXISTS', lock, info, ended, queue, waiters) == 0",
                "redis.call('EXISTS', lock) == 0",
            ),
        ],
        Mutant::Lifo => &[(
            "order = back[2] and back[2] + 1 or 1",
            "local front = redis.call('ZRANGE', queue, 0, 0, 'WITHSCORES')\n  \
             order = front[2] and front[2] - 1 or 1",
        )],
        Mutant::ConfirmWithoutCheck => &[(
            "if held ~= token or not record or record[2] ~= token then\n  return { 'lost', token }",
            "if not held then\n  return { 'lost', token }",
        )],
        Mutant::NoTombstone => &[(
            "if remembers(ended, 'k:' .. key, now) then",
            "if false then",
        )],
        Mutant::ReplayWithNewFence => &[(
            "local kind = unheard and 'collected' or 'replayed'",
            "local kind = unheard and 'collected' or 'replayed'\n    record[3] = us",
        )],
        Mutant::GiveBackOfReplayed => &[(
            "if adopted or heard or (key and not record[4]) then",
            "if false then",
        )],
        Mutant::DeadWaitersKept => &[(
            "return waiter.ends > now and alive_for(waiter.gateway) ~= -2",
            "return waiter.ends > now",
        )],
        Mutant::HandOverWithOldFence => &[(
            "local fence = head and next_fence(last, us, floor)",
            "local fence = head and (tonumber(last) or us)",
        )],
        Mutant::BreakWithoutCheck => &[("meant = record[3] == ARGV[5]", "meant = true")],
        Mutant::NoSecondRound => &[
            (
                "if (tonumber(redis.call('GET', counter)) or 0) > tonumber(fence) then\n  return { 'overtaken', nonce }\nend",
                "",
            ),
            ("redis.call('SET', counter, fence)\n", ""),
            ("  redis.call('HSET', node, 'top', fence)\n", ""),
        ],
        Mutant::HalfIsEnough
        | Mutant::NoCompensation
        | Mutant::NoTimers
        | Mutant::UnknownIsRefused
        | Mutant::HoldNotReleased
        | Mutant::ToldTooLong
        | Mutant::AnswerBeforeFsync
        | Mutant::FenceNotKept => &[],
    }
}

/// The text of a script as the variant has it.
pub(super) fn patched(mutant: Mutant, text: String) -> String {
    let replacements = replacements(mutant).iter();
    replacements.fold(text, |text, (right, wrong)| text.replace(right, wrong))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::{Deserialize, de::value::StrDeserializer};

    /// The variants that are none of the embedded store alone, and what their scripts are.
    const OF_SCRIPTS: [&str; 16] = [
        "no-nx",
        "release-without-owner-check",
        "ttl-in-seconds",
        "renew-resurrects",
        "plain-counter",
        "text-fence",
        "barging",
        "lifo",
        "confirm-without-check",
        "no-tombstone",
        "replay-with-new-fence",
        "give-back-of-replayed",
        "dead-waiters-kept",
        "hand-over-with-old-fence",
        "break-without-check",
        "no-second-round",
    ];

    #[test]
    fn every_replacement_is_of_something_that_there_is() {
        let texts: String = ["lua", "redlock/lua"]
            .map(|directory| format!("{}/src/store/redis/{directory}", env!("CARGO_MANIFEST_DIR")))
            .into_iter()
            .flat_map(|directory| std::fs::read_dir(directory).unwrap())
            .map(|entry| std::fs::read_to_string(entry.unwrap().path()).unwrap())
            .collect();
        for name in OF_SCRIPTS {
            let name = StrDeserializer::<serde::de::value::Error>::new(name);
            let replacements = replacements(Mutant::deserialize(name).unwrap());
            assert!(!replacements.is_empty());
            for (right, _) in replacements {
                assert!(texts.contains(right), "{right}");
            }
        }
    }
}
