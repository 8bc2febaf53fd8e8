//! The positive control: where clients are paused, updates must get lost.

use super::story::{Story, TERMS};
use crate::history::Resource;

#[test]
fn paused_clients_that_lose_nothing_show_nothing() {
    let mut story = Story::default();
    story.fault((0, 5), "freeze-client", false);
    assert_eq!(story.told(&TERMS).invalid.len(), 1);
    story.writes(6, Resource::Unfenced, 8, 0, 0);
    story.writes(7, Resource::Unfenced, 7, 0, 1);
    assert_eq!(story.told(&TERMS).invalid, [""; 0]);
}
