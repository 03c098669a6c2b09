//! [`Leases`]: the locks that this replica granted, or extended, and that are held as far as it knows.
//!
//! For a gauge and for two limits: no lease depends on it. What another replica released is known here
//! until its time is over, or until somebody else is granted the lock. A lease of several names is one
//! for each of them.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use fencepost::leased::KeptLease;
use fencepost_core::LeaseId;

use crate::limits::{Limits, reached};
use crate::problem::Problem;

/// They are shared by all clones.
#[derive(Clone, Default)]
pub(crate) struct Leases(Arc<Mutex<Known>>);

#[derive(Default)]
struct Known {
    holds: BTreeMap<(Arc<str>, LeaseId), Hold>,
    /// The same in the order in which they end.
    ends: BTreeSet<(Instant, Arc<str>, LeaseId)>,
    by_principal: HashMap<Arc<str>, usize>,
    /// What clients were told is over.
    over: Recent,
    /// What operators stole here.
    stolen: Recent,
    /// What was kept while some nodes had not answered, in order.
    untidy: VecDeque<(Instant, Key)>,
}

type Key = (Arc<str>, LeaseId);

/// How many leases are remembered to be over, and how many to be stolen.
const MOST_RECENT: usize = 10_000;

/// After this time all nodes have answered that ever will.
const TIDY_AFTER: Duration = Duration::from_secs(1);

/// The last leases of which something is known.
#[derive(Default)]
struct Recent {
    all: HashSet<(Arc<str>, LeaseId)>,
    in_order: VecDeque<(Arc<str>, LeaseId)>,
}

impl Recent {
    /// Whether it is new.
    fn insert(&mut self, name: &str, lease: LeaseId) -> bool {
        let key: (Arc<str>, _) = (name.into(), lease);
        if !self.all.insert(key.clone()) {
            return false;
        }
        self.in_order.push_back(key);
        if self.in_order.len() > MOST_RECENT
            && let Some(oldest) = self.in_order.pop_front()
        {
            self.all.remove(&oldest);
        }
        true
    }
}

struct Hold {
    until: Instant,
    principal: Arc<str>,
    reach: Option<usize>,
    way: Way,
}

/// How it is released here.
#[derive(Debug, Default)]
pub(crate) enum Way {
    #[default]
    ByLeaseId,
    ByValue(Box<KeptLease>),
    /// By its lease id: its release by the value has begun, and it is not known what came of it.
    Again,
}

/// Who asks for what.
#[derive(Clone, Copy)]
pub(crate) struct Claim<'a> {
    pub(crate) principal: &'a Arc<str>,
    pub(crate) lease: LeaseId,
    /// Whether others may hold the same names at the same time.
    pub(crate) shared: bool,
    /// How many slots of the name a copy of the request could be granted, that comes late. `None`: unknown.
    pub(crate) reach: Option<usize>,
}

/// What was granted and is counted. Dropped, it is counted no longer: nobody was told.
#[must_use]
pub(crate) struct Counted {
    leases: Leases,
    names: Vec<Arc<str>>,
    lease: LeaseId,
}

impl Counted {
    /// It is counted until it ends, and released by these, if there are any.
    pub(crate) fn keep(mut self, kept: Vec<KeptLease>) {
        self.names.clear();
        if !kept.is_empty() {
            self.leases.known().keep(kept);
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        for name in std::mem::take(&mut self.names) {
            self.leases.known().remove(&(name, self.lease));
        }
    }
}

impl Leases {
    /// Whether it would be too many.
    pub(crate) fn room(
        &self,
        limits: &Limits,
        claim: Claim<'_>,
        names: &[Arc<str>],
    ) -> Result<(), Problem> {
        self.known().room(limits, claim, names)
    }

    /// Counts what was granted, for so long, unless it is too many by now.
    pub(crate) fn granted(
        &self,
        limits: &Limits,
        claim: Claim<'_>,
        names: Vec<Arc<str>>,
        time: Duration,
    ) -> Result<Counted, Problem> {
        let mut known = self.known();
        known.room(limits, claim, &names)?;
        Ok(self.count_in(&mut known, claim, names, time))
    }

    /// Counts what was granted to an operator: there is no limit to that.
    pub(crate) fn stolen(&self, claim: Claim<'_>, name: &str, time: Duration) -> Counted {
        self.count_in(&mut self.known(), claim, vec![name.into()], time)
    }

    fn count_in(
        &self,
        known: &mut Known,
        claim: Claim<'_>,
        names: Vec<Arc<str>>,
        time: Duration,
    ) -> Counted {
        for name in &names {
            if !claim.shared {
                known.remove_all(name);
            }
            known.insert(name, claim, time);
        }
        Counted {
            leases: self.clone(),
            names,
            lease: claim.lease,
        }
    }

    /// It was extended, for so long: whoever granted it. An extension is never too many.
    pub(crate) fn extended(
        &self,
        principal: &Arc<str>,
        name: &str,
        lease: LeaseId,
        time: Duration,
    ) {
        let claim = Claim {
            principal,
            lease,
            shared: false,
            reach: None,
        };
        self.known().insert(&name.into(), claim, time);
    }

    /// How many slots of its name a copy of its acquire could be granted, that comes late; where that is known.
    pub(crate) fn reach(&self, name: &str, lease: LeaseId) -> Option<usize> {
        self.known().holds.get(&(name.into(), lease))?.reach
    }

    /// How it is released. Whoever asks does it.
    pub(crate) fn way(&self, name: &str, lease: LeaseId) -> Way {
        let mut known = self.known();
        match known.holds.get_mut(&(name.into(), lease)) {
            None => Way::ByLeaseId,
            Some(Hold { way, .. }) => match way {
                Way::ByLeaseId => Way::ByLeaseId,
                Way::ByValue(_) | Way::Again => std::mem::replace(way, Way::Again),
            },
        }
    }

    /// Its release by the value has failed: others hold the lock, or nobody.
    pub(crate) fn by_lease_id(&self, name: &str, lease: LeaseId) {
        if let Some(hold) = self.known().holds.get_mut(&(name.into(), lease)) {
            hold.way = Way::ByLeaseId;
        }
    }

    /// Its client is told that it is over: whether for the first time, as far as that is remembered.
    pub(crate) fn told(&self, name: &str, lease: LeaseId) -> bool {
        self.known().over.insert(name, lease)
    }

    /// It was stolen here.
    pub(crate) fn robbed(&self, name: &str, lease: LeaseId) {
        self.known().stolen.insert(name, lease);
    }

    /// Whether it was stolen here, as far as that is remembered.
    pub(crate) fn was_robbed(&self, name: &str, lease: LeaseId) -> bool {
        self.known().stolen.all.contains(&(name.into(), lease))
    }

    /// What it held of these is over.
    pub(crate) fn ended<N: AsRef<str>>(&self, names: &[N], lease: LeaseId) {
        let mut known = self.known();
        for name in names {
            known.remove(&(name.as_ref().into(), lease));
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.known().holds.len()
    }

    /// What is known now.
    fn known(&self) -> MutexGuard<'_, Known> {
        // A panic while it was locked leaves a wrong count at the worst.
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.drop_expired(Instant::now());
        known
    }
}

impl Known {
    fn of_name(&self, name: &Arc<str>) -> impl Iterator<Item = (&(Arc<str>, LeaseId), &Hold)> {
        let (first, last) = (LeaseId::new(0), LeaseId::new(u128::MAX));
        self.holds
            .range((Arc::clone(name), first)..=(Arc::clone(name), last))
    }

    fn room(&self, limits: &Limits, claim: Claim<'_>, names: &[Arc<str>]) -> Result<(), Problem> {
        let mut more = 0;
        for name in names {
            if claim.shared {
                let is_known = self.holds.contains_key(&(Arc::clone(name), claim.lease));
                let most = limits.leases_per_name;
                if !is_known && self.of_name(name).take(most).count() >= most {
                    let why = format!("{most} leases of this name are held already");
                    return Err(reached("leases_per_name", &why));
                }
                more += usize::from(!is_known);
            } else {
                // Whoever is granted the lock shows that all others of its name are over.
                let mut own = self.of_name(name).map(|(_, hold)| &hold.principal);
                more += usize::from(!own.any(|principal| principal == claim.principal));
            }
        }
        let most = limits.leases_per_principal;
        let held = self.by_principal.get(claim.principal).copied();
        match held.unwrap_or(0) + more > most && more > 0 {
            true => {
                let why = format!("this principal holds {most} locks already");
                Err(reached("leases_per_principal", &why))
            }
            false => Ok(()),
        }
    }

    fn insert(&mut self, name: &Arc<str>, claim: Claim<'_>, time: Duration) {
        let (until, lease) = (Instant::now() + time, claim.lease);
        let key = (Arc::clone(name), lease);
        let before = self.remove(&key);
        self.ends.insert((until, Arc::clone(name), lease));
        let principal = Arc::clone(claim.principal);
        *self.by_principal.entry(Arc::clone(&principal)).or_default() += 1;
        let (reach, way) = match (claim.reach, before) {
            // An extension leaves the value as it is.
            (None, Some(before)) => (before.reach, before.way),
            (reach, _) => (reach, Way::ByLeaseId),
        };
        let hold = Hold {
            until,
            principal,
            reach,
            way,
        };
        self.holds.insert(key, hold);
    }

    fn keep(&mut self, kept: Vec<KeptLease>) {
        let now = Instant::now();
        for mut kept in kept {
            let key = (kept.name().into(), kept.lease());
            // Nothing is kept of what was released meanwhile.
            let Some(hold) = self.holds.get_mut(&key) else {
                continue;
            };
            let is_untidy = kept.tidy();
            hold.way = Way::ByValue(Box::new(kept));
            if is_untidy {
                self.untidy.push_back((now + TIDY_AFTER, key));
            }
        }
        while let Some((when, key)) = self.untidy.front() {
            if *when > now {
                return;
            }
            if let Some(Hold { way, .. }) = self.holds.get_mut(key)
                && let Way::ByValue(kept) = way
            {
                kept.tidy();
            }
            self.untidy.pop_front();
        }
    }

    fn remove_all(&mut self, name: &Arc<str>) {
        let keys: Vec<_> = self.of_name(name).map(|(key, _)| key.clone()).collect();
        for key in keys {
            self.remove(&key);
        }
    }

    fn remove(&mut self, key: &(Arc<str>, LeaseId)) -> Option<Hold> {
        let hold = self.holds.remove(key)?;
        self.ends.remove(&(hold.until, Arc::clone(&key.0), key.1));
        if let Some(count) = self.by_principal.get_mut(&hold.principal) {
            *count -= 1;
            if *count == 0 {
                self.by_principal.remove(&hold.principal);
            }
        }
        Some(hold)
    }

    fn drop_expired(&mut self, now: Instant) {
        while let Some((until, name, lease)) = self.ends.first() {
            if *until > now {
                return;
            }
            let key = (Arc::clone(name), *lease);
            self.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn limits() -> Limits {
        Limits {
            leases_per_principal: 2,
            leases_per_name: 3,
            ..Limits::default()
        }
    }

    fn claim(principal: &Arc<str>, lease: u128) -> Claim<'_> {
        Claim {
            principal,
            lease: LeaseId::new(lease),
            shared: false,
            reach: None,
        }
    }

    /// The limit that refused it, if one did.
    fn grant(leases: &Leases, claim: Claim<'_>, names: &[&str], time: Duration) -> Option<String> {
        let names = names.iter().copied().map(Arc::from).collect();
        match leases.granted(&limits(), claim, names, time) {
            Ok(counted) => {
                counted.keep(Vec::new());
                None
            }
            Err(problem) => problem.field("limit")?.as_str().map(str::to_owned),
        }
    }

    #[test]
    fn what_has_expired_or_ended_or_was_never_told_is_not_counted() {
        let (leases, a) = (Leases::default(), Arc::from("a"));
        for lease in 0..10_000 {
            let name = format!("job/{lease}");
            assert_eq!(
                grant(&leases, claim(&a, lease), &[&name], Duration::ZERO),
                None
            );
        }
        assert_eq!(leases.count(), 0);
        assert!(leases.known().by_principal.is_empty() && leases.known().ends.is_empty());
        assert_eq!(grant(&leases, claim(&a, 1), &["one"], LONG), None);
        leases.extended(&a, "one", LeaseId::new(1), LONG);
        drop(leases.granted(&limits(), claim(&a, 2), vec!["two".into()], LONG));
        assert_eq!(leases.count(), 1);
        leases.ended(&["one"], LeaseId::new(1));
        assert_eq!(leases.count(), 0);
    }

    #[test]
    fn a_principal_has_so_many_and_another_has_its_own() {
        let (leases, a, b) = (Leases::default(), Arc::from("a"), Arc::from("b"));
        assert_eq!(grant(&leases, claim(&a, 1), &["one", "two"], LONG), None);
        let refused = Some("leases_per_principal".to_owned());
        assert_eq!(grant(&leases, claim(&a, 2), &["three"], LONG), refused);
        assert_eq!(grant(&leases, claim(&b, 3), &["three"], LONG), None);
        // The next attempt of a lease, and a lock that was released elsewhere.
        assert_eq!(grant(&leases, claim(&a, 1), &["one", "two"], LONG), None);
        assert_eq!(grant(&leases, claim(&a, 4), &["one"], LONG), None);
        assert_eq!(grant(&leases, claim(&b, 5), &["one"], LONG), None);
        assert_eq!(leases.count(), 3);
        assert_eq!(grant(&leases, claim(&a, 6), &["four"], LONG), None);
        // Nobody loses a lock because of a limit.
        leases.extended(&a, "from another replica", LeaseId::new(7), LONG);
        assert_eq!(leases.count(), 5);
    }

    #[tokio::test]
    async fn a_lease_is_released_by_its_value_once_and_while_it_is_known_only() {
        use fencepost::leased::OnBehalf;
        use fencepost_core::{LeaseAttempt, Owner};
        let (client, leases) = (fencepost::Client::memory().unwrap(), Leases::default());
        let principal = Arc::from("a");
        for (number, is_known) in [(1, true), (2, false)] {
            let (name, lease) = (format!("job/{number}"), LeaseId::new(number));
            let of = LeaseAttempt {
                lease,
                attempt: 0,
                max_hold: None,
            };
            let on_behalf = OnBehalf {
                of,
                owner: Owner::readable("me"),
                keeps_place: false,
            };
            let held = client.lock(&name).on_behalf(on_behalf).await.unwrap();
            let names = vec![name.as_str().into()];
            let counted = leases.granted(&limits(), claim(&principal, number), names, LONG);
            if !is_known {
                leases.ended(&[&name], lease);
            }
            counted.ok().unwrap().keep(vec![held.keep().unwrap()]);
            leases.extended(&principal, &name, lease, LONG);
            let way = leases.way(&name, lease);
            assert_eq!(matches!(way, Way::ByValue(_)), is_known);
            let repeated = leases.way(&name, lease);
            assert_eq!(matches!(repeated, Way::Again), is_known);
            leases.by_lease_id(&name, lease);
            assert!(matches!(leases.way(&name, lease), Way::ByLeaseId));
        }
    }

    #[test]
    fn that_a_lease_is_over_is_told_for_the_first_time_once() {
        let leases = Leases::default();
        let told = |lease: u128| leases.told("job", LeaseId::new(lease));
        assert!(told(0) && !told(0) && leases.told("other", LeaseId::new(0)));
        for lease in 1..=MOST_RECENT as u128 {
            assert!(told(lease) && !told(lease));
        }
        assert_eq!(leases.known().over.all.len(), MOST_RECENT);
        assert_eq!(leases.known().over.in_order.len(), MOST_RECENT);
    }

    #[test]
    fn readers_of_a_name_are_counted_together() {
        let leases = Leases::default();
        for lease in 1..=3 {
            let principal = Arc::from(format!("p{lease}"));
            let reader = Claim {
                shared: true,
                ..claim(&principal, lease)
            };
            assert_eq!(grant(&leases, reader, &["shelf"], LONG), None);
            assert_eq!(grant(&leases, reader, &["shelf"], LONG), None, "again");
        }
        let principal = Arc::from("p4");
        let reader = Claim {
            shared: true,
            ..claim(&principal, 4)
        };
        let refused = Some("leases_per_name".to_owned());
        assert_eq!(grant(&leases, reader, &["shelf"], LONG), refused);
        assert_eq!(grant(&leases, reader, &["shelves"], LONG), None);
    }
}
