//! [`Gate`]: what stops a whole client process. Everything of it goes through its gate: nothing of
//! it may run while the gate is closed.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// Whether a client process runs.
#[derive(Default)]
pub(crate) struct Gate(Mutex<Inside>);

#[derive(Default)]
struct Inside {
    closed: bool,
    closings: u64,
    waiting: Vec<Waker>,
}

impl Gate {
    pub(crate) fn close(&self) {
        let mut inside = self.inside();
        inside.closed = true;
        inside.closings += 1;
    }

    pub(crate) fn open(&self) {
        let waiting = {
            let mut inside = self.inside();
            inside.closed = false;
            std::mem::take(&mut inside.waiting)
        };
        for waker in waiting {
            waker.wake();
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.inside().closed
    }

    /// How often it has been closed.
    pub(crate) fn closings(&self) -> u64 {
        self.inside().closings
    }

    /// Lets a task run only while the gate is open.
    pub(crate) fn guard<F: Future + Unpin>(self: &Arc<Self>, task: F) -> Guarded<F> {
        let gate = Arc::clone(self);
        Guarded { gate, task }
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A task that stands still while its gate is closed.
pub(crate) struct Guarded<F> {
    gate: Arc<Gate>,
    task: F,
}

impl<F: Future + Unpin> Future for Guarded<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.get_mut();
        {
            let mut inside = this.gate.inside();
            if inside.closed {
                inside.waiting.push(cx.waker().clone());
                return Poll::Pending;
            }
        }
        Pin::new(&mut this.task).poll(cx)
    }
}
