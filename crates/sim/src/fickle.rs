//! [`Fickle`]: a caller that changes its mind and drops the future, at whatever poll that may be.

use std::pin::Pin;
use std::task::{Context, Poll};

/// A future that is dropped when it has been polled so often without an end.
pub(crate) struct Fickle<'a, T> {
    future: Option<Pin<Box<dyn Future<Output = T> + 'a>>>,
    polls_left: Option<u32>,
}

/// Polls `future` to its end, or drops it after `polls` of them. With zero it is dropped before it
/// began.
pub(crate) fn fickle<'a, T>(
    future: impl Future<Output = T> + 'a,
    polls: Option<u32>,
) -> Fickle<'a, T> {
    let future = Some(Box::pin(future) as _);
    let polls_left = polls;
    Fickle { future, polls_left }
}

impl<T> Future for Fickle<'_, T> {
    /// `None` when it was dropped.
    type Output = Option<T>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        let this = self.get_mut();
        if this.polls_left == Some(0) {
            this.future = None;
        }
        let Some(future) = &mut this.future else {
            return Poll::Ready(None);
        };
        if let Poll::Ready(value) = future.as_mut().poll(cx) {
            return Poll::Ready(Some(value));
        }
        if let Some(left) = &mut this.polls_left {
            *left -= 1;
            if *left == 0 {
                this.future = None;
                return Poll::Ready(None);
            }
        }
        Poll::Pending
    }
}
