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
    /// How many different states were seen. Where the number of steps is bounded, that includes those
    /// one step further, which are not looked at.
    pub states: usize,
    /// How many steps the longest of the ways was that were looked at.
    pub depth: usize,
    /// How long it took.
    pub took: Duration,
    /// What did not hold, and a way there: the shortest, unless there were very many states.
    pub fault: Option<Fault>,
    steps_to_fault: Option<usize>,
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

/// Up to so many states, a fault is looked for once more in fewer steps.
const WORTH_SHORTENING: usize = 100_000;

/// Looks at every state within reach, until something is found that does not hold.
pub fn check<M>(
    model: M,
    reach: Reach,
    threads: usize,
    tell: impl Fn(&M, Path<M::State, M::Action>) -> Vec<String>,
) -> Outcome
where
    M: Model + Clone + Send + Sync + 'static,
    M::State: Clone + Debug + Hash + PartialEq + Send + Sync + 'static,
    M::Action: Clone + Debug + PartialEq + Send + Sync + 'static,
{
    let mut outcome = look(model.clone(), reach, threads, &tell);
    // The checker looks at states by the block, and tells the last fault of the block.
    while let Some(steps) = outcome.steps_to_fault
        && steps > 0
        && outcome.states < WORTH_SHORTENING
    {
        let shorter = look(model.clone(), Reach::Steps(steps - 1), threads, &tell);
        if shorter.fault.is_none() {
            break;
        }
        outcome = shorter;
    }
    outcome
}

fn look<M>(
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
        // The checker counts states, not steps, and does not look at those of the last depth.
        checker = checker.target_max_depth(steps + 2);
    }
    let checker = checker.spawn_bfs().join();
    let took = begin.elapsed();
    let model = checker.model();
    let mut discoveries = checker.discoveries();
    let depth = checker.max_depth().saturating_sub(1);
    let mut outcome = Outcome {
        states: checker.unique_state_count(),
        depth: match reach {
            Reach::Exhaustive => depth,
            Reach::Steps(steps) => depth.min(steps),
        },
        took,
        fault: None,
        missing: Vec::new(),
        steps_to_fault: None,
    };
    for property in model.properties() {
        match (property.expectation, discoveries.remove(property.name)) {
            (Expectation::Sometimes, None) => outcome.missing.push(property.name),
            (Expectation::Sometimes, Some(_)) | (_, None) => {}
            (_, Some(path)) => {
                let path: Path<_, _> = path;
                let steps = path.clone().into_actions().len();
                if outcome.steps_to_fault.is_none_or(|other| steps < other) {
                    outcome.steps_to_fault = Some(steps);
                    outcome.fault = Some(Fault {
                        property: property.name,
                        story: tell(model, path),
                    });
                }
            }
        }
    }
    outcome
}
