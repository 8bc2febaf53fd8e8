//! A release that is carried out although the connection that it came on has ended.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll, ready},
    thread,
};

use futures_util::future::Either;
use http::{Method, Request};

use super::carrier::Carrier;

/// The answer to a release, which goes on in a task of its own when it is dropped, if there is room.
///
/// HTTP looks for the end of a connection before it asks for the answer to what came on it. So of a
/// caller that hung up while the gateway did not run not even the handler is begun, although its
/// request is there.
pub(super) struct Carried<F: Future + Send + 'static> {
    /// None once it is there.
    answer: Option<Pin<Box<F>>>,
    has_begun: bool,
    carrier: Carrier,
}

/// Sees an answer through if its request ends a lease. Any other is of use to its caller alone, and ends
/// with the connection.
pub(super) fn carried<F>(answer: F, ends_lease: bool, carrier: &Carrier) -> Either<F, Carried<F>>
where
    F: Future + Send + 'static,
{
    if ends_lease {
        Either::Right(Carried {
            answer: Some(Box::pin(answer)),
            has_begun: false,
            carrier: carrier.clone(),
        })
    } else {
        Either::Left(answer)
    }
}

/// Whether a request ends a lease, as far as can be seen before its route is known.
pub(super) fn ends_lease<B>(request: &Request<B>) -> bool {
    match *request.method() {
        Method::DELETE => true,
        Method::POST => request.uri().path().ends_with("/release"),
        _ => false,
    }
}

// === impl Carried ===

impl<F, T> Future for Carried<F>
where
    F: Future<Output = Result<T, Infallible>> + Send + 'static,
{
    type Output = Result<T, Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.has_begun = true;
        let answer = self.answer.as_mut();
        let answer = answer.expect("an answer that is there is not polled for again");
        let answer = ready!(answer.as_mut().poll(cx));
        self.answer = None;
        Poll::Ready(answer)
    }
}

impl<F: Future + Send + 'static> Drop for Carried<F> {
    fn drop(&mut self) {
        // What panicked does not go on.
        if let Some(answer) = self.answer.take()
            && !thread::panicking()
        {
            let seen_through = async move { drop(answer.await) };
            self.carrier.carry(seen_through, self.has_begun);
        }
    }
}
