//! [`Inbox`]: where the replies to one command arrive that was sent to several nodes.
//!
//! Nearly always every node gives the reply that a command has when nothing is in its way. A future for each node
//! would be woken and polled for each of them, though nothing can be decided before a majority has replied. An inbox
//! wakes its owner once, when that is so.

use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use futures_util::task::AtomicWaker;

use super::Call;
use fencepost_core::lock::{Command, Reply};

// Nodes without a connection reply where they are asked.
#[cfg(any(test, feature = "redis"))]
mod slot;
#[cfg(any(test, feature = "redis"))]
pub(crate) use slot::ReplySlot;

/// The replies to one command. Each node has one, or none while it is awaited.
pub struct Inbox {
    usual: Reply,
    /// The nodes that have given it, a bit each.
    given: AtomicU16,
    /// The nodes that have not, and what goes on there.
    unusual: Mutex<Vec<(usize, Call)>>,
    /// How many usual replies wake the owner.
    wakes_at: AtomicU32,
    owner: AtomicWaker,
}

impl Inbox {
    /// For the replies to this command. `None` if it has no usual reply.
    pub(crate) fn of(command: &Command) -> Option<Arc<Self>> {
        let usual = command.usual_reply()?;
        Some(Arc::new(Self {
            usual,
            given: AtomicU16::new(0),
            unusual: Mutex::default(),
            wakes_at: AtomicU32::new(1),
            owner: AtomicWaker::new(),
        }))
    }

    /// Nothing can be decided before so many nodes have replied, all of which reply here.
    pub(crate) fn wakes_at(&self, replies: usize) {
        let replies = u32::try_from(replies).unwrap_or(u32::MAX);
        let _ = self
            .wakes_at
            .compare_exchange(1, replies, Ordering::SeqCst, Ordering::SeqCst);
    }

    /// Wakes this one from now on. To be called before [`take`](Self::take), so that no reply is missed.
    pub(crate) fn register(&self, owner: &Waker) {
        self.owner.register(owner);
    }

    /// What has come from this node.
    pub(crate) fn take(&self, node: usize) -> Option<Taken> {
        if self.given.load(Ordering::SeqCst) & 1 << node != 0 {
            return Some(Taken::Usual(self.usual.clone()));
        }
        if self.wakes_at.load(Ordering::SeqCst) != ALWAYS {
            return None;
        }
        let mut unusual = self.unusual();
        let place = unusual.iter().position(|(from, _)| *from == node)?;
        Some(Taken::GoesOn(unusual.swap_remove(place).1))
    }

    fn unusual(&self) -> MutexGuard<'_, Vec<(usize, Call)>> {
        // A panic while it was locked cannot have left it half changed.
        self.unusual.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Once a node has replied something else, every reply may decide.
const ALWAYS: u32 = 0;

/// What a node has replied.
pub(crate) enum Taken {
    Usual(Reply),
    /// What its reply comes to takes longer.
    GoesOn(Call),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::NodeError;
    use fencepost_core::lock::TicketDisposition;
    use fencepost_core::owner::Owner;
    use fencepost_core::value::AttemptValue;
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;

    #[derive(Default)]
    struct Counting(AtomicUsize);

    impl Wake for Counting {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn release() -> Arc<Inbox> {
        let command = Command::Release {
            value: AttemptValue::labelled(1, &Owner::readable("me")),
            tombstone: None,
            ticket: TicketDisposition::Stays,
            follower: None,
            is_lease: false,
        };
        Inbox::of(&command).unwrap()
    }

    /// An inbox of five nodes, of which three decide, and how often its owner was woken since it last looked.
    fn awaited() -> (Arc<Inbox>, Vec<ReplySlot>, impl Fn() -> usize) {
        let inbox = release();
        let slots = (0..5).map(|node| inbox.slot(node)).collect();
        inbox.wakes_at(3);
        let count = Arc::<Counting>::default();
        let waker = Waker::from(Arc::clone(&count));
        inbox.register(&waker);
        let again = Arc::clone(&inbox);
        let woken = move || {
            let woken = count.0.swap(0, Ordering::SeqCst);
            again.register(&waker);
            woken
        };
        (inbox, slots, woken)
    }

    fn is_usual(inbox: &Inbox, node: usize) -> bool {
        matches!(inbox.take(node), Some(Taken::Usual(Reply::Released)))
    }

    #[test]
    fn the_owner_is_woken_when_enough_have_replied_to_decide() {
        let (inbox, mut slots, woken) = awaited();
        slots.pop().unwrap().usual();
        slots.pop().unwrap().usual();
        assert_eq!(woken(), 0);
        slots.pop().unwrap().usual();
        assert_eq!(woken(), 1);
        let replied: Vec<_> = (0..5).map(|node| is_usual(&inbox, node)).collect();
        assert_eq!(replied, [false, false, true, true, true]);
    }

    /// Granted without a raise, then granted on another node: that decides, though only one reply was usual.
    #[test]
    fn after_an_unusual_reply_every_other_wakes() {
        let (inbox, mut slots, woken) = awaited();
        slots.pop().unwrap().usual();
        assert_eq!(woken(), 0);
        let call: Call = Box::pin(std::future::ready(Ok(Reply::NotHeld(None))));
        slots.remove(1).goes_on(call);
        assert_eq!(woken(), 1);
        assert!(matches!(inbox.take(1), Some(Taken::GoesOn(_))));
        assert!(inbox.take(1).is_none(), "only once");
        slots.remove(0).usual();
        assert_eq!(woken(), 1);
        assert!(is_usual(&inbox, 0));
    }

    #[test]
    fn a_slot_that_is_dropped_has_no_reply_and_says_so() {
        let (inbox, mut slots, woken) = awaited();
        drop(slots.remove(2));
        assert_eq!(woken(), 1);
        let Some(Taken::GoesOn(call)) = inbox.take(2) else {
            panic!("nothing has come");
        };
        let outcome = futures_util::FutureExt::now_or_never(call);
        assert!(matches!(outcome, Some(Err(NodeError::Disconnected(_)))));
    }

    /// Fewer reply here than it has nodes: the others wake it themselves, and one reply here may be what is missing.
    #[test]
    fn without_a_number_every_reply_wakes() {
        let inbox = release();
        let count = Arc::<Counting>::default();
        inbox.register(&Waker::from(Arc::clone(&count)));
        inbox.slot(4).usual();
        assert_eq!(count.0.load(Ordering::SeqCst), 1);
    }
}
