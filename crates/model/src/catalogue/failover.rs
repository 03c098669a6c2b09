//! A Sentinel group that fails over.

use super::{Subject, Variant};
use crate::failover::{Failover, FailoverFlaw, ONE_AFTER_THE_OTHER};

/// A group of three Sentinels, in which this is done wrong.
fn group(flaw: Option<FailoverFlaw>) -> Subject {
    Subject::Failover(Failover {
        sentinels: 3,
        failover: 2,
        max_ttl: 1,
        flaw,
    })
}

pub(super) fn sound() -> Vec<Variant> {
    vec![
        Variant::sound(
            "failover",
            "a Sentinel group of 3 fails over between a holder that renews and a rival",
            group(None),
        )
        .quick(),
    ]
}

pub(super) fn broken() -> Vec<Variant> {
    let breaks =
        |name, about, flaw| Variant::broken(name, about, ONE_AFTER_THE_OTHER, group(Some(flaw)));
    vec![
        breaks(
            "failover-never-asks-again",
            "a holder goes on renewing at the address that it had",
            FailoverFlaw::NeverAsksAgain,
        ),
        breaks(
            "failover-one-sentinel",
            "what one Sentinel says is enough",
            FailoverFlaw::OneSentinel,
        ),
        breaks(
            "failover-no-quarantine",
            "the new master votes at once",
            FailoverFlaw::NoQuarantine,
        ),
        breaks(
            "failover-quarantine-of-max-ttl",
            "the new master votes after max_ttl, while what the Sentinels said before still counts",
            FailoverFlaw::QuarantineOfMaxTtl,
        ),
    ]
}
