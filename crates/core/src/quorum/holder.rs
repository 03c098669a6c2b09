//! The token of a holder, from what the nodes that hold the lock for it report. Pure.

use super::Quorum;
use crate::words::token::FencingToken;

/// The token of a holder, from a majority of nodes that hold the lock for it, each with its stored
/// token; above `seen`, if a larger one than another holder's is required.
///
/// A token is certified when a majority has exactly it. If some of these nodes are down now, and
/// one that granted late has another token, several numbers qualify. Then it is the smallest: the
/// token is one of them, and every renewal raises the nodes below it.
#[must_use]
pub fn token_of_holder(
    quorum: Quorum,
    stored: &[FencingToken],
    seen: Option<FencingToken>,
) -> Option<FencingToken> {
    if stored.len() < quorum.needed() {
        return None;
    }
    let elsewhere = quorum.nodes() - stored.len();
    let may_be_it = |token: &FencingToken| {
        let same = stored.iter().filter(|other| *other == token).count();
        same + elsewhere >= quorum.needed() && seen.is_none_or(|seen| *token > seen)
    };
    stored.iter().copied().filter(may_be_it).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_grant_never_makes_the_token_larger_than_it_is() {
        let token = |number| FencingToken::new(number).unwrap();
        let of = |nodes, stored: &[u64], seen: Option<u64>| {
            let stored: Vec<_> = stored.iter().copied().map(token).collect();
            let quorum = Quorum::of(nodes).unwrap();
            token_of_holder(quorum, &stored, seen.map(token)).map(FencingToken::get)
        };
        assert_eq!(of(3, &[7, 7, 9], None), Some(7));
        assert_eq!(of(3, &[7], None), None, "no majority");
        assert_eq!(of(5, &[9, 7, 7], None), Some(7));
        assert_eq!(of(3, &[9, 7], None), Some(7));
        assert_eq!(of(3, &[9, 7], Some(7)), Some(9), "seven was another's");
        assert_eq!(of(3, &[9, 7], Some(9)), None);
        assert_eq!(of(1, &[3], None), Some(3));
    }
}
