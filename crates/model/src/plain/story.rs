//! A path as sentences.

use stateright::{Model as _, Path};

use super::{Plain, State, Step};
use crate::story::name;

/// Every step of a path in a line.
#[must_use]
pub fn tell(model: &Plain, path: Path<State, Step>) -> Vec<String> {
    let mut lines = Vec::new();
    for (state, step) in path.into_vec() {
        let Some(step) = step else { break };
        let Some(next) = model.next_state(&state, step) else {
            break;
        };
        let mut line = match step {
            Step::Begin(attempt) => {
                let p = model.proposals[attempt];
                format!("{} asks all nodes, and proposes {p}", name(attempt))
            }
            Step::Arrive { attempt, node } => {
                let call = state.attempts[attempt].wires[node].call;
                let call = call.map_or(String::new(), |call| format!("{call:?}"));
                format!("{call} of {} arrives at place {}", name(attempt), node + 1)
            }
            Step::Read { attempt, node } => {
                let answer = state.attempts[attempt].wires[node].answer;
                let answer = answer.map_or(String::new(), |answer| format!("{answer:?}"));
                format!("{} reads {answer} of place {}", name(attempt), node + 1)
            }
            Step::Release { attempt, node } => {
                format!(
                    "the release of {} arrives at place {}",
                    name(attempt),
                    node + 1
                )
            }
            Step::End(attempt) => format!("{} gives up or gives back", name(attempt)),
            Step::Expire(node) => format!("the key at place {} expires", node + 1),
            Step::Forget(node) => format!("place {} forgets its register", node + 1),
        };
        for (attempt, now) in next.attempts.iter().enumerate() {
            if let (None, Some(token)) = (state.attempts[attempt].token, now.token) {
                line += &format!(" => {} HAS THE LOCK with token {token}", name(attempt));
            }
        }
        lines.push(line);
    }
    lines
}
