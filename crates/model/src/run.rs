//! Checks a model and tells how it went.

use std::fmt::Debug;
use std::hash::Hash;
use std::time::{Duration, Instant};

use stateright::{Checker, Expectation, HasDiscoveries, Model, Path};

/// How far to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Every state there is.
    Exhaustive,
    /// Every state that so many steps lead to.
    Steps(usize),
}

/// How a check went.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// How many different states were looked at.
    pub states: usize,
    /// How many steps the longest of the ways was that were looked at.
    pub depth: usize,
    /// How long it took.
    pub took: Duration,
    /// What did not hold, and the shortest way there.
    pub fault: Option<Fault>,
    /// What should have occurred and did not.
    pub missing: Vec<&'static str>,
}

/// A property that does not hold.
#[derive(Clone, Debug)]
pub struct Fault {
    /// Which.
    pub property: &'static str,
    /// How it comes about, a sentence a step.
    pub story: Vec<String>,
}

/// Looks at every state within reach, until something is found that does not hold.
pub fn check<M>(
    model: M,
    reach: Reach,
    threads: usize,
    tell: impl Fn(&M, Path<M::State, M::Action>) -> Vec<String>,
) -> Outcome
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + Debug + Hash + PartialEq + Send + Sync + 'static,
    M::Action: Clone + Debug + PartialEq + Send + Sync + 'static,
{
    let begin = Instant::now();
    let mut checker = model
        .checker()
        .threads(threads)
        .finish_when(HasDiscoveries::AnyFailures);
    if let Reach::Steps(steps) = reach {
        // The checker counts states, and does not look at those of the last depth.
        checker = checker.target_max_depth(steps + 2);
    }
    let checker = checker.spawn_bfs().join();
    let took = begin.elapsed();
    let model = checker.model();
    let mut discoveries = checker.discoveries();
    let mut outcome = Outcome {
        states: checker.unique_state_count(),
        depth: checker.max_depth().saturating_sub(1),
        took,
        fault: None,
        missing: Vec::new(),
    };
    for property in model.properties() {
        match (property.expectation, discoveries.remove(property.name)) {
            (Expectation::Sometimes, None) => outcome.missing.push(property.name),
            (Expectation::Sometimes, Some(_)) | (_, None) => {}
            (_, Some(path)) => {
                outcome.fault.get_or_insert_with(|| Fault {
                    property: property.name,
                    story: tell(model, path),
                });
            }
        }
    }
    outcome
}
