//! Every answer is one that may be given to its request.

use super::prelude::*;

pub(in super::super) fn check(history: &History, _terms: &Terms, report: &mut Report) {
    for op in &history.ops {
        if let Some((at, RecordedAnswer::Wrong { what })) = &op.heard {
            let what = format!("{:?} was answered {what}", op.ask);
            report.violated(Invariant::Contract, &op.lock, *at, what);
        }
    }
}
