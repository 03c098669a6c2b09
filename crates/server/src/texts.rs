//! [`Texts`]: what one look says to the streams, written once for all that see the same.
//!
//! Thousands of streams may be about one lock with a long queue. Written for each of them, what
//! happened takes longer than the time until the next look.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use axum::body::Bytes;

use crate::auth::Principal;

/// Which locks a stream is about: a name, or a prefix.
type About = (Option<String>, String);

/// The texts of one look.
#[derive(Debug, Default)]
pub(crate) struct Texts(Mutex<HashMap<About, Vec<Text>>>);

/// What those see who have the rights of that principal.
#[derive(Debug)]
struct Text {
    principal: Principal,
    text: Arc<OnceLock<Bytes>>,
}

impl Texts {
    /// The text for a stream, which is written unless another stream has the same.
    pub(crate) fn shared(
        &self,
        about: &About,
        principal: &Principal,
        write: impl FnOnce() -> Bytes,
    ) -> Bytes {
        // Written outside of the lock: streams that see different things are not in each other's way.
        let text = self.text(about, principal);
        text.get_or_init(write).clone()
    }

    fn text(&self, about: &About, principal: &Principal) -> Arc<OnceLock<Bytes>> {
        // A panic while it was locked cannot have left it half changed.
        let mut texts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = texts.entry(about.clone()).or_default();
        let same = |text: &&Text| text.principal.has_rights_of(principal);
        if let Some(text) = known.iter().find(same) {
            return Arc::clone(&text.text);
        }
        let text = Arc::default();
        known.push(Text {
            principal: principal.clone(),
            text: Arc::clone(&text),
        });
        text
    }
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderMap, HeaderValue, header};

    use super::*;
    use crate::auth::{Tokens, authenticate, hash_token};

    fn principal(tokens: Option<&Tokens>, token: &str) -> Principal {
        let mut headers = HeaderMap::new();
        let value = HeaderValue::from_str(&format!("Bearer {token}")).expect("fits");
        headers.insert(header::AUTHORIZATION, value);
        authenticate(tokens, &headers, None).expect("known")
    }

    /// Who gets its text written: all others have that of one before them.
    fn writers(streams: &[(&str, &Principal)]) -> Vec<bool> {
        let texts = Texts::default();
        let writes = |(name, principal): &(&str, &Principal)| {
            let (about, mut wrote) = ((Some((*name).to_owned()), String::new()), false);
            texts.shared(&about, principal, || {
                wrote = true;
                Bytes::from_static(b"text")
            });
            wrote
        };
        streams.iter().map(writes).collect()
    }

    #[test]
    fn a_text_is_written_once_for_those_who_see_the_same_and_never_shared_with_others() {
        let entry = |token: &str| {
            format!(
                "[[token]]\nprincipal = \"same\"\nsha256 = \"{}\"\nverbs = [\"read\"]\n\
                 prefixes = [\"\"]\n",
                hash_token(token)
            )
        };
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("tokens.toml");
        std::fs::write(&path, entry("one") + &entry("two")).expect("written");
        let tokens = Tokens::load(path).expect("good");
        let [one, two] = ["one", "two"].map(|token| principal(Some(&tokens), token));
        let again = principal(Some(&tokens), "one");
        let anybody = principal(None, "");
        let streams = [
            ("job", &one),
            ("job", &again),
            ("job", &two),
            ("other", &one),
            ("job", &anybody),
            ("job", &anybody),
        ];
        assert_eq!(writers(&streams), [true, false, true, true, true, false]);
    }
}
