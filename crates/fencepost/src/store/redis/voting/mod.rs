//! Who may vote.
//!
//! `handshake`, `info`: what a new connection asks; `roster`: no server twice; `membership`: the marker and the
//! quarantine; `closing`: the end of a cluster; `replicas`: votes that count only once replicas have them.

pub(super) mod closing;
pub(super) mod handshake;
pub(super) mod info;
pub(super) mod membership;
pub(super) mod replicas;
pub(super) mod roster;
