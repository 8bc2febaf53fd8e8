//! Answers that may not be given.

use super::story::{Story, acquire};
use crate::history::RecordedAnswer;

#[test]
fn an_answer_that_is_none_is_found() {
    let mut story = Story::default();
    story.op(
        (0, 1),
        "a",
        acquire(0),
        RecordedAnswer::Wrong {
            what: "500 internal".into(),
        },
    );
    assert_eq!(story.breaks(), ["Contract"]);
}
