//! I4: what is said of the resource.

use super::story::{Story, TERMS};
use crate::history::Resource::{Fenced, Unfenced};

#[test]
fn a_change_that_overwrites_another_is_found() {
    let mut story = Story::default();
    story.writes(0, Fenced, 7, 0, 0);
    story.writes(1, Fenced, 8, 1, 1);
    assert_eq!(story.breaks(), [""; 0]);
    story.writes(2, Fenced, 9, 1, 2);
    assert_eq!(story.breaks(), ["I4"]);
}

#[test]
fn a_resource_that_goes_back_is_found() {
    let mut story = Story::default();
    story.writes(0, Fenced, 7, 0, 0);
    // The same holder may write as often as it likes.
    story.writes(1, Fenced, 7, 1, 1);
    assert_eq!(story.breaks(), [""; 0]);
    story.writes(2, Fenced, 6, 2, 2);
    assert_eq!(story.breaks(), ["I4"]);
}

#[test]
fn what_the_unfenced_resource_loses_is_counted() {
    let mut story = Story::default();
    story.writes(0, Unfenced, 8, 0, 0);
    story.writes(1, Unfenced, 7, 0, 1);
    let told = story.told(&TERMS);
    assert_eq!(told.lost_updates, 1);
    assert!(told.violations.is_empty());
}
