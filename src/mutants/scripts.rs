//! The variants of the Lua scripts, as replacements in their text.

use super::Mutant;

/// What is replaced by what, in every script that has it.
#[expect(clippy::too_many_lines, reason = "it is a table")]
fn replacements(mutant: Mutant) -> &'static [(&'static str, &'static str)] {
    match mutant {
        Mutant::NoNx => &[(
            "if place == '' and redis.call('EXISTS', lock, wait, of, used or of) == 0 then",
            "if true then",
        )],
        Mutant::ReleaseWithoutOwnerCheck => &[(
            "local ours = string.sub(held, 1, 65) == id",
            "local ours = held ~= '' and held ~= '2*'",
        )],
        Mutant::TtlInSeconds => &[
            (
                "redis.call('SET', lock, lease, 'PX', ARGV[2])",
                "redis.call('SET', lock, lease, 'PX', math.ceil(ARGV[2] / 1000))",
            ),
            (
                "redis.call('SET', lock, lease, 'PX', lasts)",
                "redis.call('SET', lock, lease, 'PX', math.ceil(lasts / 1000))",
            ),
        ],
        Mutant::RenewResurrects => &[(
            "  local forced = ended_by_force(id, us or clock())\n",
            "  if not held then\n    local us = clock()\n    \
             held = id .. 'hx000' .. us .. us .. string.format('%.0f', us + 2500000) .. '00002500000000000' \
             .. string.rep(' ', 80) .. '\\n'\n    \
             redis.call('SET', lock, held, 'PX', 2500)\n    \
             return 'renewed ' .. id .. ' 0:' .. field(held) .. field(us)\n  end\n  \
             local forced = ended_by_force(id, us or clock())\n",
        )],
        Mutant::PlainCounter => &[
            (
                "math.max((tonumber(before) or 0) + 1, tonumber(us), string.sub(floor, 1, 16) + 1)",
                "(tonumber(before) or 0) + 1",
            ),
            (
                "if is_number and (not before or #before == 16 and before < us) and floor < us then",
                "if false then",
            ),
            (
                "local fence = string.format('%.0f', next)",
                "local fence = string.format('%016.0f', next)",
            ),
        ],
        Mutant::TextFence => &[
            (
                "if is_number and (not before or #before == 16 and before < us) and floor < us then",
                "if false then",
            ),
            (
                "local fence = string.format('%.0f', next)",
                // What `..` does to a number, with four digits less, so that hand-offs fall together on any machine.
                "local fence = string.format('%016.0f', string.format('%.10g', next))",
            ),
        ],
        Mutant::Barging => &[
            (
                "local first = ours and redis.call('LPOP', wait)\nif ours",
                "local first = nil\nif ours",
            ),
            (
                "redis.call('EXISTS', lock, wait, of, used or of) == 0",
                "redis.call('EXISTS', lock) == 0",
            ),
        ],
        Mutant::Lifo => &[
            (
                "count = redis.call('RPUSH', wait, id)\n  local longest",
                "count = redis.call('LPUSH', wait, id)\n  local longest",
            ),
            (
                "count = redis.call('RPUSH', wait, id)\n  if count <=",
                "count = redis.call('LPUSH', wait, id)\n  if count <=",
            ),
        ],
        Mutant::ConfirmWithoutCheck => &[
            (
                "if not (held and (share or is_lease(held))) or string.sub(held, 1, 65) ~= id then\n  return (whole",
                "if not (held and (share or is_lease(held))) then\n  return (whole",
            ),
            (
                "if kept_by(held) ~= string.sub(id, 2) then\n  return 'superseded ' .. id .. ' '\nend\n-- The attempt",
                "-- The attempt",
            ),
        ],
        Mutant::NoTombstone => &[(
            "if letter == 'r' or (whose and string.byte(whose) == 108) then",
            "if whose and string.byte(whose) == 108 then\n  whose = nil\nend\nif false then",
        )],
        Mutant::ReplayWithNewFence => &[(
            "return kind .. id .. ' ' .. field(news) .. field(lease)",
            "lease = string.sub(lease, 1, 70) .. us .. string.sub(lease, 87)\n    \
             return kind .. id .. ' ' .. field(news) .. field(lease)",
        )],
        Mutant::GiveBackOfReplayed => &[("if adopted or heard or again then", "if false then")],
        Mutant::DeadWaitersKept => &[(
            "\n    and is_alive(string.sub(body, 2, 17), granted)",
            "\n    and (is_alive(string.sub(body, 2, 17), granted) or true)",
        )],
        Mutant::HandOverWithOldFence => &[(
            "local fence, why = draw(us)\n      if fence and string.byte(body, 18) == 120 then\n        pass(",
            "local fence, why = redis.call('GET', counter) or us\n      if fence and string.byte(body, 18) == 120 then\n        pass(",
        )],
        Mutant::BreakWithoutCheck => &[(
            "meant = string.sub(held, 71, 86) == ARGV[3]",
            "meant = true",
        )],
        Mutant::BargingReader => &[(
            "  if fits and count == 0 then",
            "  if fits and (count == 0 or share) then",
        )],
        Mutant::OneTooMany => &[
            (
                "share.count() < tonumber(string.sub(place, 5, 8))",
                "share.count() <= tonumber(string.sub(place, 5, 8))",
            ),
            (
                "count < tonumber(string.sub(body, 22, 25))",
                "count <= tonumber(string.sub(body, 22, 25))",
            ),
        ],
        Mutant::SlotReused => &[("      redis.call('SETBIT', slots, slot, '1')\n", "")],
        Mutant::ExpiryFreesTwo => &[(
            "      share.close()\n    end\n    return count\n",
            "      share.close()\n    end\n    return count > 1 and math.max(1, count - #over) or count\n",
        )],
        Mutant::WriterBesideReaders => &[(
            "local fits = not held or (share and not alone and share.count()",
            "local fits = not held or (share and alone) or (share and share.count()",
        )],
        Mutant::NobodyAfterTheHead => &[(
            "  -- It may have been the head, and kept those behind it from sharing the lock.\n  admit(us, share, share.count())\n",
            "",
        )],
        Mutant::NoSecondRound => &[
            (
                "if (tonumber(redis.call('GET', counter)) or 0) > tonumber(fence) then\n  return { 'overtaken', nonce }\nend",
                "",
            ),
            ("redis.call('SET', counter, fence)\n", ""),
            ("  redis.call('HSET', node, 'top', fence)\n", ""),
        ],
        Mutant::RenewPastRequest => &[(
            "return asked and math.min(left, math.floor((asked + BACKSTOP - us) / 1000)) or left",
            "return left",
        )],
        Mutant::HalfIsEnough
        | Mutant::NoCompensation
        | Mutant::NoTimers
        | Mutant::UnknownIsRefused
        | Mutant::HoldNotReleased
        | Mutant::ToldTooLong
        | Mutant::AnswerBeforeFsync
        | Mutant::FenceNotKept
        | Mutant::PartsKept
        | Mutant::GroupUnsorted
        | Mutant::RequestWithoutCheck => &[],
    }
}

/// The text of a script as the variant has it.
#[cfg(feature = "mutants")]
pub(super) fn patched(mutant: Mutant, text: String) -> String {
    let replacements = replacements(mutant).iter();
    replacements.fold(text, |text, (right, wrong)| text.replace(right, wrong))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The variants that are none of the embedded store alone, and what their scripts are.
    const OF_SCRIPTS: [Mutant; 23] = [
        Mutant::NoNx,
        Mutant::ReleaseWithoutOwnerCheck,
        Mutant::TtlInSeconds,
        Mutant::RenewResurrects,
        Mutant::PlainCounter,
        Mutant::TextFence,
        Mutant::Barging,
        Mutant::Lifo,
        Mutant::ConfirmWithoutCheck,
        Mutant::NoTombstone,
        Mutant::ReplayWithNewFence,
        Mutant::GiveBackOfReplayed,
        Mutant::DeadWaitersKept,
        Mutant::HandOverWithOldFence,
        Mutant::BreakWithoutCheck,
        Mutant::NoSecondRound,
        Mutant::BargingReader,
        Mutant::OneTooMany,
        Mutant::SlotReused,
        Mutant::ExpiryFreesTwo,
        Mutant::WriterBesideReaders,
        Mutant::NobodyAfterTheHead,
        Mutant::RenewPastRequest,
    ];

    #[test]
    fn every_replacement_is_of_something_that_there_is() {
        let directories = [
            "scripts",
            "scripts/parts",
            "redlock/lua",
            "redlock/lua/parts",
        ];
        let texts: String = directories
            .map(|directory| format!("{}/src/store/redis/{directory}", env!("CARGO_MANIFEST_DIR")))
            .into_iter()
            .flat_map(|directory| std::fs::read_dir(directory).unwrap())
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|end| end == "lua"))
            .map(|path| std::fs::read_to_string(path).unwrap())
            .collect();
        for mutant in OF_SCRIPTS {
            let replacements = replacements(mutant);
            assert!(!replacements.is_empty());
            for (right, _) in replacements {
                assert!(texts.contains(right), "{right}");
            }
        }
    }
}
