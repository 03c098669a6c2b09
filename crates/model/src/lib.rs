//! The model check: every order of events that a few clients on a few nodes can have, through the
//! library's own decisions.
//!
//! What is checked is not a copy. A client of the model decides by
//! [`AcquireTally`](fencepost_core::quorum::AcquireTally), [`ExtendTally`](fencepost_core::quorum::ExtendTally) and
//! [`ReleaseTally`](fencepost_core::quorum::ReleaseTally); a node of the model is a
//! [`LockState`](fencepost_core::lock::LockState). The model adds what lies between them: the network,
//! time, restarts, and clients that give up.
//!
//! # What can happen
//! - **Messages.** A message arrives at any time or never, and any other may overtake it. That is
//!   more than connections allow that keep the order and are sometimes replaced, so whatever holds
//!   here holds there.
//! - **Time** is not measured. The one thing that the clocks promise is that the holder's time is
//!   over before the node's: a key set after a round began expires only when the validity of that
//!   round has ended ([`AfterValidity`](setup::Expiry::AfterValidity)). It may end at any moment. In the setups with
//!   [`Free`](setup::Expiry::Free) expiry even that is not promised, and tokens must be unique and in order all the same.
//! - **Claims.** One claim is one attempt to get the lock and all that follows from it. A client
//!   that tries again is another claim: it shares nothing with the first but its connections, whose
//!   order is not relied on.
//! - **Restarts** with loss of everything: holder, register and marks. A quarantine ends when all
//!   rounds that began before the restart have ended.
//!
//! # What is left out
//! - Counters that are forgotten after a day, and the end of a mark after one TTL. Without marks
//!   (most setups send no release at all) everything holds as well, so their end cannot matter.
//! - Loss of a part of the data, or a return to an older copy of it: all is lost or nothing.
//! - Loss that no quarantine follows, such as a flush by hand. Nothing is promised then.
//! - Tokens that reach the largest number, proposals beyond the permitted skew, stealing.
//! - A claim that extends before it has read that its attempt succeeded: there is no such call.
//!
//! # What must hold
//! See [`properties`].
//!
//! # The map
//! | module | what it is |
//! | --- | --- |
//! | [`setup`] | how many of what, and which flaw |
//! | [`world`] | a state: nodes, claims, and the mail between them |
//! | [`steps`] | what can happen in a state, and what follows |
//! | [`settle`] | which states are taken for one, and why that loses nothing |
//! | [`properties`] | what must hold in every state, and what must occur in some |
//! | [`healing`] | that the lock can be had again, from every state |
//! | [`semaphore`] | a model of its own: k holders per node and a majority |
//! | [`read_write`] | a model of its own: writers, readers, and writers that become readers |
//! | [`plain`] | a model of its own: acquiring by plain commands, without a script |
//! | [`release`] | a model of its own: one claim is released on one node over connections that break |
//! | [`service`] | a model of its own: a client of the lock service repeats its acquire, and a rival |
//! | [`service_slots`] | the same for one of several slots, which a copy could be granted beside the first |
//! | [`failover`] | a model of its own: a Sentinel group fails over between a holder and a rival |
//! | [`story`] | a way through the model, told in sentences |
//! | [`catalogue`] | every variant, sound or broken, by name |
//! | [`run`] | checks a variant and tells how it went |

pub mod catalogue;
pub mod failover;
pub mod healing;
pub mod plain;
pub mod properties;
pub mod read_write;
pub mod release;
pub mod run;
pub mod semaphore;
pub mod service;
pub mod service_slots;
pub mod settle;
pub mod setup;
pub mod steps;
pub mod story;
pub mod world;
