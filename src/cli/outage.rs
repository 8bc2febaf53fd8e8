//! Says once that an acquire is not answered, and once that it is again.

use tokio::time::Instant;

use crate::{client::ClientError, lock::LockName};

use super::{output, signals::CLEANUP_GRACE, visible::visible};

/// Whether an acquire is answered, where no line on a terminal shows it.
pub(super) struct Outage<'a> {
    name: &'a LockName,
    asked: Instant,
    /// Whether a gateway was there at all. One that never was is told in the end, moments later.
    reached: bool,
    announced: bool,
}

// === impl Outage ===

impl<'a> Outage<'a> {
    /// Nothing is wrong yet with an acquire that has begun then.
    pub(super) fn of(name: &'a LockName, asked: Instant) -> Self {
        Self {
            name,
            asked,
            reached: false,
            announced: false,
        }
    }

    /// Hears how the last request went: what was wrong, or that it was answered.
    pub(super) fn update(&mut self, trouble: Option<&ClientError>) {
        if let Some(message) = self.message(trouble) {
            output::note(&format!("latchgate: {}: {}", self.name, visible(&message)));
        }
    }

    /// What there is to be said, if it was not said before.
    fn message(&mut self, trouble: Option<&ClientError>) -> Option<String> {
        self.reached |= !matches!(trouble, Some(ClientError::Unreachable { .. }));
        match trouble {
            // What is over within a moment of the beginning is not worth a word.
            Some(error)
                if self.reached && !self.announced && self.asked.elapsed() >= CLEANUP_GRACE =>
            {
                self.announced = true;
                Some(format!(
                    "the gateway cannot be asked, trying again: {error}"
                ))
            }
            Some(_) => None,
            None => {
                std::mem::take(&mut self.announced).then(|| "the gateway answers again".to_owned())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::advance;

    use super::*;

    fn unreachable() -> ClientError {
        ClientError::Unreachable {
            url: "http://a".to_owned(),
            reason: "gone".to_owned(),
        }
    }

    fn unanswered() -> ClientError {
        ClientError::OutcomeUnknown {
            reason: "cut".to_owned(),
            problem: None,
        }
    }

    /// What is said of these, a while apart.
    async fn messages<const N: usize>(results: [Option<ClientError>; N]) -> [Option<String>; N] {
        let name = LockName::new("deploy").unwrap();
        let mut outage = Outage::of(&name, Instant::now());
        let mut messages = [const { None }; N];
        for (trouble, messages) in results.iter().zip(&mut messages) {
            advance(Duration::from_secs(2)).await;
            *messages = outage.message(trouble.as_ref());
        }
        messages
    }

    #[tokio::test(start_paused = true)]
    async fn every_outage_is_told_once_and_so_is_its_end() {
        let begin = |error| {
            Some(format!(
                "the gateway cannot be asked, trying again: {error}"
            ))
        };
        let end = Some("the gateway answers again".to_owned());
        let (cut, gone) = (unanswered(), unreachable());
        let results = [
            Some(cut.clone()),
            Some(gone.clone()),
            None,
            None,
            Some(gone.clone()),
            None,
        ];
        let expected = [begin(&cut), None, end.clone(), None, begin(&gone), end];
        assert_eq!(messages(results).await, expected);
    }

    #[tokio::test(start_paused = true)]
    async fn a_gateway_that_was_never_there_does_not_answer_again() {
        let results = [Some(unreachable()), Some(unreachable()), None];
        assert_eq!(messages(results).await, [None, None, None]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_moment_is_not_worth_a_word() {
        let name = LockName::new("deploy").unwrap();
        let mut outage = Outage::of(&name, Instant::now());
        assert_eq!(outage.message(Some(&unanswered())), None);
        assert_eq!(outage.message(None), None);
    }
}
