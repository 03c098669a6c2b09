//! No key is left on any node after TTL and grace.

use crate::event::What;
use crate::history::History;
use crate::violation::Violation;

/// All nodes that still have keys in the end.
#[must_use]
pub fn check(history: &History) -> Vec<Violation> {
    let mut found = Vec::new();
    for event in history.events() {
        if let What::KeysLeft { node, keys } = &event.what
            && !keys.is_empty()
        {
            let what = format!("{} keys are left on node {node}", keys.len());
            found.push(Violation::new("leftovers", what, vec![event.clone()]));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Sample;

    #[test]
    fn an_empty_node_is_fine() {
        assert_eq!(check(&Sample::new().left(1, &[]).history()), []);
    }

    #[test]
    fn a_key_that_is_left_is_found() {
        let found = check(&Sample::new().left(1, &["job", "{job}:queue"]).history());
        assert_eq!(found.len(), 1);
        assert!(found[0].to_string().contains("{job}:queue"), "{}", found[0]);
    }
}
