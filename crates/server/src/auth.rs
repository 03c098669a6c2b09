//! Who may do what: bearer tokens and client certificates, from one file that is read again when it
//! changes.
//!
//! A token is stored as its SHA-256: tokens are random, so that a slow hash would protect nothing
//! more. Whoever is refused learns nothing of the lock it asked for.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use axum::http::{HeaderMap, StatusCode, header};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use crate::problem::Problem;
use crate::slots::plain_name;

/// How often it is looked whether the file has changed.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A listing asks for so many prefixes at the most, each by itself.
const MOST_PREFIXES: usize = 8;

/// So many digits of its SHA-256 name a certificate.
const CERTIFICATE_DIGITS: usize = 16;

/// What a principal may do with the names of its prefixes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Verb {
    /// Acquire, extend and release.
    Acquire,
    /// See who holds what.
    Read,
    /// Take a lock from its holder.
    Steal,
    /// See the nodes.
    Nodes,
}

impl Verb {
    fn as_str(self) -> &'static str {
        match self {
            Self::Acquire => "acquire",
            Self::Read => "read",
            Self::Steal => "steal",
            Self::Nodes => "nodes",
        }
    }
}

type Hash = [u8; 32];

/// One line of the file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    principal: String,
    /// Of the bearer token.
    sha256: Option<String>,
    /// Of the client certificate in DER.
    certificate_sha256: Option<String>,
    verbs: Vec<Verb>,
    prefixes: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    token: Vec<Entry>,
}

#[derive(Debug)]
struct Rule {
    principal: Arc<str>,
    token: Option<Hash>,
    certificate: Option<Hash>,
    verbs: Vec<Verb>,
    prefixes: Vec<String>,
}

/// What is wrong with a file of tokens.
#[derive(Debug)]
pub struct AuthError(String);

impl std::fmt::Display for AuthError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for AuthError {}

/// The file of tokens. Clones share it.
#[derive(Clone)]
pub struct Tokens(Arc<Shared>);

struct Shared {
    path: PathBuf,
    now: Mutex<Loaded>,
}

struct Loaded {
    rules: Arc<Vec<Rule>>,
    changed: Option<SystemTime>,
    looked: Instant,
}

/// The SHA-256 of a token, as the file has it.
#[must_use]
pub fn hash_token(token: &str) -> String {
    hex(&Sha256::digest(token.as_bytes()).into())
}

impl Tokens {
    /// Reads the file.
    ///
    /// # Errors
    /// [`AuthError`] says which entry cannot be used, and why.
    pub fn load(path: impl Into<PathBuf>) -> Result<Self, AuthError> {
        let path = path.into();
        let (rules, changed) = read(&path)?;
        let now = Mutex::new(Loaded {
            rules: Arc::new(rules),
            changed,
            looked: Instant::now(),
        });
        Ok(Self(Arc::new(Shared { path, now })))
    }

    /// The rules as they are now. A file that has become unusable changes nothing, and is said.
    fn rules(&self) -> Arc<Vec<Rule>> {
        let mut now = self.0.now.lock().unwrap_or_else(PoisonError::into_inner);
        if now.looked.elapsed() >= LOOK_EVERY {
            now.looked = Instant::now();
            let changed = modified(&self.0.path);
            if changed != now.changed {
                match read(&self.0.path) {
                    Ok((rules, changed)) => {
                        tracing::info!(path = %self.0.path.display(), "tokens reloaded");
                        (now.rules, now.changed) = (Arc::new(rules), changed);
                    }
                    Err(error) => {
                        now.changed = changed;
                        tracing::error!(%error, "tokens not reloaded; the old ones stay");
                    }
                }
            }
        }
        Arc::clone(&now.rules)
    }
}

fn modified(path: &Path) -> Option<SystemTime> {
    std::fs::metadata(path)
        .and_then(|data| data.modified())
        .ok()
}

fn read(path: &Path) -> Result<(Vec<Rule>, Option<SystemTime>), AuthError> {
    let shown = path.display();
    let changed = modified(path);
    let text = std::fs::read_to_string(path)
        .map_err(|error| AuthError(format!("cannot read {shown}: {error}")))?;
    let file: File =
        toml::from_str(&text).map_err(|error| AuthError(format!("{shown}: {error}")))?;
    let mut rules = Vec::new();
    for entry in file.token {
        let who = &entry.principal;
        let fault = |why: &str| AuthError(format!("{shown}: token of {who:?}: {why}"));
        if who.is_empty() || who.len() > 128 || who.chars().any(char::is_control) {
            return Err(fault(
                "a principal has 1 to 128 bytes and no control characters",
            ));
        }
        let parse = |text: &Option<String>| match text {
            None => Ok(None),
            Some(text) => unhex(text)
                .map(Some)
                .ok_or_else(|| fault("a SHA-256 has 64 hex digits")),
        };
        let (token, certificate) = (parse(&entry.sha256)?, parse(&entry.certificate_sha256)?);
        if token.is_none() && certificate.is_none() {
            return Err(fault("give sha256 (of the token) or certificate_sha256"));
        }
        rules.push(Rule {
            principal: entry.principal.as_str().into(),
            token,
            certificate,
            verbs: entry.verbs,
            prefixes: entry.prefixes,
        });
    }
    Ok((rules, changed))
}

/// Who asks, and what it may.
#[derive(Clone, Debug)]
pub(crate) struct Principal {
    pub(crate) name: Arc<str>,
    rights: Option<Rights>,
}

#[derive(Clone, Debug)]
struct Rights {
    rules: Arc<Vec<Rule>>,
    which: usize,
}

impl Principal {
    /// Whoever can reach a service without a file of tokens: by its certificate, if it had to show one.
    fn without_tokens(certificate: Option<&Hash>) -> Self {
        let name = match certificate {
            Some(hash) => format!("certificate:{}", &hex(hash)[..CERTIFICATE_DIGITS]).into(),
            None => "anonymous".into(),
        };
        Self { name, rights: None }
    }

    /// Whether it may do and see exactly what the other may.
    pub(crate) fn has_rights_of(&self, other: &Self) -> bool {
        match (&self.rights, &other.rights) {
            (None, None) => true,
            (Some(ours), Some(theirs)) => {
                Arc::ptr_eq(&ours.rules, &theirs.rules) && ours.which == theirs.which
            }
            _ => false,
        }
    }

    /// Whether it may do that with this name.
    pub(crate) fn may(&self, verb: Verb, name: &str) -> Result<(), Problem> {
        let Some(rule) = self.rule() else {
            return Ok(());
        };
        // Rights are given for the name that is asked for, which a slot of it has not.
        let name = plain_name(name);
        let in_prefix = rule
            .prefixes
            .iter()
            .any(|prefix| name.starts_with(prefix.as_str()));
        match rule.verbs.contains(&verb) && in_prefix {
            true => Ok(()),
            // The same words whether the lock exists or not.
            false => Err(Problem::new(
                StatusCode::FORBIDDEN,
                "forbidden",
                format!("{} may not {} this name", self.name, verb.as_str()),
            )),
        }
    }

    /// Whether it may do that at all.
    pub(crate) fn may_at_all(&self, verb: Verb) -> Result<(), Problem> {
        match self.rule() {
            Some(rule) if !rule.verbs.contains(&verb) => Err(Problem::new(
                StatusCode::FORBIDDEN,
                "forbidden",
                format!("{} has no right to {}", self.name, verb.as_str()),
            )),
            _ => Ok(()),
        }
    }

    /// With which of its prefixes the names begin that it may be shown of those that begin like that; itself if there
    /// are too many of them to ask for each.
    pub(crate) fn prefixes_in<'a>(&'a self, prefix: &'a str) -> Vec<&'a str> {
        let Some(rule) = self.rule().filter(|_| !prefix.starts_with('{')) else {
            // The names of slots begin with a brace, which those that rights are for have not.
            return vec![prefix];
        };
        let all = rule.prefixes.iter().map(String::as_str);
        let mut within: Vec<&str> = all
            .filter_map(|its| match its.starts_with(prefix) {
                true => Some(its),
                false => prefix.starts_with(its).then_some(prefix),
            })
            .collect();
        within.sort_unstable();
        // What begins with a shorter one is among its names.
        within.dedup_by(|longer, shorter| longer.starts_with(*shorter));
        match within.len() > MOST_PREFIXES {
            true => vec![prefix],
            false => within,
        }
    }

    /// Whether it may see that name.
    pub(crate) fn sees(&self, name: &str) -> bool {
        self.may(Verb::Read, name).is_ok()
    }

    /// Whether it has that right for any name.
    pub(crate) fn has(&self, verb: Verb) -> bool {
        self.may_at_all(verb).is_ok()
    }

    fn rule(&self) -> Option<&Rule> {
        let rights = self.rights.as_ref()?;
        rights.rules.get(rights.which)
    }
}

/// Finds out who asks.
pub(crate) fn authenticate(
    tokens: Option<&Tokens>,
    headers: &HeaderMap,
    certificate: Option<&Hash>,
) -> Result<Principal, Problem> {
    let Some(tokens) = tokens else {
        return Ok(Principal::without_tokens(certificate));
    };
    let rules = tokens.rules();
    let shown = headers.get(header::AUTHORIZATION);
    let shown = shown.and_then(|value| value.to_str().ok());
    let bearer = shown.and_then(|value| value.split_once(' '));
    let bearer = bearer.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    let digest: Option<Hash> = bearer.map(|(_, token)| Sha256::digest(token.trim()).into());
    let same = |one: &Option<Hash>, other: Option<&Hash>| match (one, other) {
        (Some(one), Some(other)) => bool::from(one.ct_eq(other)),
        _ => false,
    };
    // All of them, so that the time tells nothing of where it was found.
    let mut found = None;
    for (which, rule) in rules.iter().enumerate() {
        if same(&rule.token, digest.as_ref()) | same(&rule.certificate, certificate) {
            found = found.or(Some(which));
        }
    }
    let Some(which) = found else {
        let why = match shown {
            None => "send \"Authorization: Bearer TOKEN\"",
            Some(_) => "this token is not known",
        };
        return Err(Problem::new(
            StatusCode::UNAUTHORIZED,
            "unauthenticated",
            why,
        ));
    };
    let name = Arc::clone(&rules[which].principal);
    Ok(Principal {
        name,
        rights: Some(Rights { rules, which }),
    })
}

fn hex(bytes: &Hash) -> String {
    use std::fmt::Write as _;
    bytes
        .iter()
        .fold(String::with_capacity(64), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
}

fn unhex(text: &str) -> Option<Hash> {
    let text = text.trim().as_bytes();
    if text.len() != 64 {
        return None;
    }
    let mut bytes = [0; 32];
    for (place, pair) in text.chunks_exact(2).enumerate() {
        let pair = std::str::from_utf8(pair).ok()?;
        bytes[place] = u8::from_str_radix(pair, 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    fn file(text: &str) -> (tempfile::TempDir, Result<Tokens, AuthError>) {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("tokens.toml");
        std::fs::write(&path, text).expect("written");
        let tokens = Tokens::load(path);
        (dir, tokens)
    }

    fn with_token(token: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let value = HeaderValue::from_str(&format!("Bearer {token}")).expect("fits");
        headers.insert(header::AUTHORIZATION, value);
        headers
    }

    #[test]
    fn a_principal_may_only_what_its_entry_says() {
        let text = format!(
            "[[token]]\nprincipal = \"ci\"\nsha256 = \"{}\"\nverbs = [\"acquire\", \"read\"]\n\
             prefixes = [\"ci/\"]\n",
            hash_token("s3cret")
        );
        let (_dir, tokens) = file(&text);
        let tokens = tokens.expect("good");
        let who = authenticate(Some(&tokens), &with_token("s3cret"), None).expect("known");
        assert_eq!(&*who.name, "ci");
        assert!(who.may(Verb::Acquire, "ci/build").is_ok());
        for (verb, name) in [
            (Verb::Steal, "ci/build"),
            (Verb::Acquire, "prod"),
            (Verb::Read, "c"),
        ] {
            assert_eq!(who.may(verb, name).err().map(|p| p.code), Some("forbidden"));
        }
        for headers in [HeaderMap::new(), with_token("s3cre"), with_token("")] {
            let refused = authenticate(Some(&tokens), &headers, None).err();
            assert_eq!(refused.map(|p| p.code), Some("unauthenticated"));
        }
    }

    #[test]
    fn a_listing_is_of_the_prefixes_that_may_be_seen() {
        let entry = |prefixes: &str| {
            format!(
                "[[token]]\nprincipal = \"p\"\nsha256 = \"{}\"\nverbs = [\"read\"]\n\
                 prefixes = [{prefixes}]\n",
                hash_token("t")
            )
        };
        let many: Vec<_> = (0..9).map(|n| format!("\"{n}/\"")).collect();
        for (prefixes, prefix, within) in [
            ("\"b/\", \"a/\"", "", &["a/", "b/"][..]),
            ("\"a/\", \"a/x\", \"b\"", "", &["a/", "b"]),
            ("\"a/\", \"b/\"", "a/x", &["a/x"]),
            ("\"a/\", \"ab\", \"b/\"", "a", &["a/", "ab"]),
            ("\"\"", "a", &["a"]),
            ("\"a/\"", "c", &[]),
            ("\"a/\"", "{a", &["{a"]),
            ("", "c", &[]),
            (&many.join(","), "", &[""]),
        ] {
            let (_dir, tokens) = file(&entry(prefixes));
            let tokens = tokens.expect("good");
            let who = authenticate(Some(&tokens), &with_token("t"), None).expect("known");
            assert_eq!(who.prefixes_in(prefix), within, "{prefixes} {prefix}");
        }
    }

    #[test]
    fn without_a_file_of_tokens_a_certificate_is_a_name() {
        let name = |shown: Option<&Hash>| {
            let who = authenticate(None, &HeaderMap::new(), shown).expect("anybody");
            assert!(who.may(Verb::Steal, "any").is_ok());
            who.name
        };
        assert_eq!(&*name(None), "anonymous");
        assert_eq!(&*name(Some(&[0xab; 32])), "certificate:abababababababab");
    }

    #[test]
    fn an_entry_that_cannot_be_used_is_named() {
        for (text, why) in [
            (
                "[[token]]\nprincipal = \"a\"\nverbs = []\nprefixes = []\n",
                "give sha256",
            ),
            (
                "[[token]]\nprincipal = \"a\"\nsha256 = \"xy\"\nverbs = []\nprefixes = []\n",
                "64 hex",
            ),
            ("[[token]]\nprincipal = \"a\"\nverb = []\n", "unknown field"),
        ] {
            let (_dir, tokens) = file(text);
            let error = tokens.err().expect("refused").to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
