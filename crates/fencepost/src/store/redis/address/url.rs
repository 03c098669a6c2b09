//! Parses a URL into the address of a server and its credentials.
//!
//! No label and no error message made here may show a password.
//!
//! By hand: the crate `url` brings some thirty others along, most of them for international host names, which it does
//! not even convert under these schemes. What that cost is in [`command`](crate::store::redis::protocol::command).

use std::borrow::Cow;
use std::fmt;
use std::net::Ipv6Addr;
use std::path::PathBuf;
use std::time::Duration;

use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};

use crate::error::{Cause, Error};

const TCP_FORM: &str = "write redis://[user]:[password]@host[:port][/db][?protocol=resp3&replicas=K], with \
                        special characters in user and password percent-encoded";
const UNIX_FORM: &str =
    "write redis+unix:///path/of/the/socket[?db=N][&user=U][&pass=P][&protocol=resp3&replicas=K]";

/// The address of a server, and its credentials.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// The route.
    pub(crate) place: Place,
    /// How to log in there.
    pub(crate) login: Login,
    /// The URL without user and password, for display.
    pub(crate) label: String,
    /// How many replicas must have a vote before it counts.
    pub(crate) replicas: u32,
}

/// Who logs in at a server, and to which database. Without a password nobody does: whoever connects is its default user.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Login {
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) db: i64,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login")
            .field("user", &self.user)
            .field("db", &self.db)
            .finish_non_exhaustive()
    }
}

/// The route to a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Tcp { host: String, port: u16, tls: bool },
    Unix(PathBuf),
}

impl Place {
    /// Whether this address leads to another server on each machine.
    pub(crate) fn is_local(&self) -> bool {
        match self {
            Self::Unix(_) => true,
            Self::Tcp { host, .. } => is_loopback(host),
        }
    }
}

/// Whether this host is the machine itself.
pub(crate) fn is_loopback(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let host = host.trim_end_matches('.');
    let address = host.parse::<std::net::IpAddr>().map(|ip| ip.to_canonical());
    host.eq_ignore_ascii_case("localhost")
        || address.is_ok_and(|ip| ip.is_loopback() || ip.is_unspecified())
}

impl Target {
    /// # Errors
    /// [`ErrorKind::InvalidUrl`](crate::ErrorKind::InvalidUrl) says what would be valid.
    pub(crate) fn parse(url: &str) -> Result<Self, Error> {
        let invalid = |why: String| {
            Error::from(Cause::InvalidUrl {
                url: without_login(url),
                why,
            })
        };
        let (scheme, rest) = url
            .split_once("://")
            .ok_or_else(|| invalid(format!("it has no scheme; {TCP_FORM}")))?;
        let (tls, unix) = match scheme {
            "redis" | "valkey" => (false, false),
            "rediss" | "valkeys" => (true, false),
            "redis+unix" | "valkey+unix" | "unix" => (false, true),
            _ => return Err(invalid(format!("unknown scheme; {TCP_FORM}"))),
        };
        if tls && cfg!(not(feature = "tls")) {
            let why = "TLS is not built in; build fencepost with its feature \"tls\"";
            return Err(invalid(why.to_owned()));
        }
        let form = if unix { UNIX_FORM } else { TCP_FORM };
        let wrong = |why: &str| invalid(format!("{why}; {form}"));
        if rest.contains('#') {
            let why = "it has a \"#\" part, which is not supported; a \"#\" in a password is %23";
            return Err(invalid(why.to_owned()));
        }
        let rest = rest.trim_matches(|c| c <= ' ');
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        // Before the parameters: with a "?" in the password, these are none.
        let (place, shown, mut login) = match unix {
            true => {
                let (place, shown) = socket(authority, path).map_err(wrong)?;
                (place, shown, Login::default())
            }
            false => {
                let (userinfo, address) = authority.rsplit_once('@').unwrap_or(("", authority));
                let (place, shown) = server(address, tls).map_err(wrong)?;
                let login = Login {
                    db: database(path.trim_matches('/')).map_err(wrong)?,
                    ..credentials(userinfo).map_err(wrong)?
                };
                let shown = shown + path.trim_end_matches('/');
                (place, shown, login)
            }
        };
        let (mut replicas, mut shown_db) = (0, String::new());
        for (key, value) in parameters(query) {
            match (key.as_str(), unix) {
                ("replicas", _) => {
                    replicas = replica_count(&value).ok_or_else(|| {
                        invalid(format!(
                            "expected replicas to be a number from 0 to {MOST_REPLICAS}"
                        ))
                    })?;
                }
                ("protocol", _) => check_protocol(&value).map_err(wrong)?,
                ("db", true) => {
                    login.db = database(&value).map_err(wrong)?;
                    shown_db = format!("?db={}", login.db);
                }
                ("user", true) => login.user = Some(value),
                ("pass", true) => login.password = Some(value),
                _ if is_parameter(&key) => {
                    return Err(invalid(format!("unknown parameter {key:?}; {form}")));
                }
                // It may be the rest of a password.
                _ => return Err(wrong("unknown parameter")),
            }
        }
        if login.user.is_some() {
            // Without one, nobody would log in, and all would be done as the default user.
            login.password.get_or_insert_default();
        }
        let label = format!("{scheme}://{shown}{shown_db}");
        Ok(Self {
            place,
            login,
            label,
            replicas,
        })
    }
}

/// What a path may not have as it is, in a label.
const IN_PATH: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'<')
    .add(b'>')
    .add(b'`')
    .add(b'{')
    .add(b'}');

/// A Unix socket, and how it is shown.
fn socket(authority: &str, path: &str) -> Result<(Place, String), &'static str> {
    let path = path.trim_end_matches('/');
    if !matches!(authority, "" | "localhost") || path.is_empty() {
        return Err("missing path");
    }
    let shown = utf8_percent_encode(path, IN_PATH);
    let path = percent_decode_str(path).decode_utf8();
    let path = path.map_err(|_| "the path is not UTF-8")?.into_owned();
    Ok((Place::Unix(path.into()), shown.to_string()))
}

/// A host with or without a port, and how the two are shown.
fn server(address: &str, tls: bool) -> Result<(Place, String), &'static str> {
    const NO_URL: &str = "it is not a URL";
    let (name, port) = split_port(address);
    let port = match port.filter(|port| !port.is_empty()) {
        Some(port) if port.bytes().all(|byte| byte.is_ascii_digit()) => {
            Some(port.parse::<u16>().map_err(|_| NO_URL)?)
        }
        Some(_) => return Err(NO_URL),
        None => None,
    };
    let (host, mut shown) = match name
        .strip_prefix('[')
        .and_then(|name| name.strip_suffix(']'))
    {
        Some(ip) => {
            let ip = ip.parse::<Ipv6Addr>().map_err(|_| NO_URL)?.to_string();
            let shown = format!("[{ip}]");
            (ip, shown)
        }
        None if name.is_empty() => return Err("it has no host"),
        None if !name.chars().all(is_of_host) => return Err(NO_URL),
        None => (name.to_owned(), name.to_owned()),
    };
    if ["0.0.0.0", "::"].contains(&host.as_str()) {
        return Err("cannot connect to a wildcard address (0.0.0.0 or ::)");
    }
    if let Some(port) = port {
        shown += &format!(":{port}");
    }
    let port = port.unwrap_or(PORT);
    Ok((Place::Tcp { host, port, tls }, shown))
}

/// Where a server listens unless told otherwise.
const PORT: u16 = 6379;

fn is_of_host(c: char) -> bool {
    c.is_ascii_graphic() && !"\"<>@[]\\^`{|}:".contains(c)
}

/// `user:password`, of which either may be missing.
fn credentials(userinfo: &str) -> Result<Login, &'static str> {
    let (user, password) = userinfo.split_once(':').unwrap_or((userinfo, ""));
    let decoded = |text: &str| percent_decode_str(text).decode_utf8().map(Cow::into_owned);
    let user = decoded(user).map_err(|_| "the user is not UTF-8")?;
    let password = decoded(password).map_err(|_| "the password is not UTF-8")?;
    Ok(Login {
        user: Some(user).filter(|user| !user.is_empty()),
        password: Some(password).filter(|password| !password.is_empty()),
        db: 0,
    })
}

fn database(text: &str) -> Result<i64, &'static str> {
    match text {
        "" => Ok(0),
        text => match text.parse() {
            Ok(..0) => Err("the database number is below 0"),
            Ok(db) => Ok(db),
            Err(_) => Err("invalid database number"),
        },
    }
}

/// Checks the value of `protocol=`. It has no effect: connections that need the third version ask for it.
pub(crate) fn check_protocol(text: &str) -> Result<(), &'static str> {
    match ["2", "resp2", "3", "resp3"].contains(&text) {
        true => Ok(()),
        false => Err("the protocol is neither resp2 nor resp3"),
    }
}

/// The parameters behind the `?` of a URL, decoded.
pub(crate) fn parameters(query: &str) -> impl Iterator<Item = (String, String)> {
    let decoded = |text: &str| {
        let text = text.replace('+', " ");
        percent_decode_str(&text).decode_utf8_lossy().into_owned()
    };
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs.map(move |pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        (decoded(key), decoded(value))
    })
}

/// Whether it may be shown: it cannot be anything but a mistyped parameter.
pub(crate) fn is_parameter(key: &str) -> bool {
    key.bytes()
        .all(|byte| byte.is_ascii_lowercase() || b"_-".contains(&byte))
}

/// The maximum of `replicas=`.
pub(crate) const MOST_REPLICAS: u32 = 9;

/// The value of `replicas=`.
pub(crate) fn replica_count(text: &str) -> Option<u32> {
    text.parse().ok().filter(|count| *count <= MOST_REPLICAS)
}

/// The host, and the port if there is one.
pub(crate) fn split_port(host: &str) -> (&str, Option<String>) {
    match host.rsplit_once(':') {
        // Not a colon inside an IPv6 address.
        Some((name, port)) if !port.contains(']') => (name, Some(port.to_owned())),
        _ => (host, None),
    }
}

/// Whole seconds: `10s`, or `10`.
pub(crate) fn seconds(text: &str) -> Option<Duration> {
    let number = text.strip_suffix('s').unwrap_or(text);
    number.parse().ok().map(Duration::from_secs)
}

/// A displayable form of a URL that could not be parsed.
pub(crate) fn without_login(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let rest = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
    let rest = rest.split(['?', '#']).next().unwrap_or("");
    match scheme {
        "" => rest.to_owned(),
        _ => format!("{scheme}://{rest}"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::store::redis::cluster::ClusterSpec;
    use crate::store::redis::sentinel::GroupSpec;

    fn tcp(host: &str, port: u16) -> Place {
        Place::Tcp {
            host: host.into(),
            port,
            tls: false,
        }
    }

    #[test]
    fn the_forms_that_people_use_are_understood() {
        for (url, place, label, db) in [
            ("redis://h", tcp("h", 6379), "redis://h", 0),
            ("redis://h:1/2", tcp("h", 1), "redis://h:1/2", 2),
            ("redis://u:p@h:1", tcp("h", 1), "redis://h:1", 0),
            ("redis://:p@h/", tcp("h", 6379), "redis://h", 0),
            (
                "valkey://u@h/?protocol=resp3",
                tcp("h", 6379),
                "valkey://h",
                0,
            ),
            ("redis://[::1]:7", tcp("::1", 7), "redis://[::1]:7", 0),
            (
                "redis+unix:///run/r.sock?db=3&user=u&pass=secret",
                Place::Unix("/run/r.sock".into()),
                "redis+unix:///run/r.sock?db=3",
                3,
            ),
            (
                "unix:///run/r.sock",
                Place::Unix("/run/r.sock".into()),
                "unix:///run/r.sock",
                0,
            ),
        ] {
            let target = Target::parse(url).unwrap();
            assert_eq!(target.place, place, "{url}");
            assert_eq!(target.label, label, "{url}");
            assert_eq!(target.login.db, db, "{url}");
        }
    }

    #[test]
    fn user_and_password_may_be_percent_encoded() {
        let target = Target::parse("redis://b%20b:p%40ss%2F%23@h").unwrap();
        assert_eq!(target.login.user.as_deref(), Some("b b"));
        assert_eq!(target.login.password.as_deref(), Some("p@ss/#"));
        let waits = Target::parse("redis://:a%26b@h?replicas=2&protocol=resp3").unwrap();
        assert_eq!((waits.replicas, waits.label.as_str()), (2, "redis://h"));
        assert_eq!(waits.login.password.as_deref(), Some("a&b"));
        let nopass = Target::parse("redis://bob@h").unwrap();
        assert_eq!(nopass.login.password.as_deref(), Some(""));
        assert!(!format!("{waits:?}").contains("a&b"));
    }

    #[test]
    fn a_bad_url_is_refused_with_what_would_be_right_and_without_its_password() {
        for (url, why) in [
            ("localhost:6379", "no scheme"),
            ("http://h", "unknown scheme"),
            ("redis://", "redis://[user]"),
            ("redis://:secret@h/x", "database number"),
            ("redis://:secret@h/-1", "below 0"),
            ("redis://:secret@h:99999", "not a URL"),
            ("redis://:sec/secret@h", "percent-encoded"),
            ("redis://:secret@h?protocol=resp9", "protocol"),
            ("redis://h?pass=secret", "unknown parameter"),
            ("redis://:secret@h?replicas=x", "0 to 9"),
            ("redis://h/#secret", "%23"),
            ("redis://:secret@0.0.0.0", "wildcard"),
            ("redis+unix://", "redis+unix:///path"),
            ("redis+unix:///s?db=x&pass=secret", "database number"),
        ] {
            let error = Target::parse(url).unwrap_err();
            assert_eq!(error.kind(), crate::ErrorKind::InvalidUrl);
            let text = error.to_string();
            assert!(text.contains(why), "{url}: {text}");
            assert!(!text.contains("secret"), "{url}: {text}");
        }
    }

    #[test]
    fn what_looks_like_a_parameter_may_be_half_a_password() {
        for url in [
            "redis://u:12?secret@h",
            "redis://u:secret?x@h",
            "redis://u:secret#x@h",
            "redis://u:secret/x@h",
        ] {
            let error = Target::parse(url).unwrap_err().to_string();
            assert!(!error.contains("secret"), "{url}: {error}");
            assert!(
                error.contains("percent-encoded") || error.contains("%23"),
                "{error}"
            );
        }
    }

    /// Labels name a node in the marker of its cluster: as they were with another parser.
    #[test]
    fn a_label_is_what_was_written_without_what_says_nothing() {
        for (url, label) in [
            ("redis://Host:06379/02/", "redis://Host:6379/02"),
            ("redis://h:/?", "redis://h"),
            ("redis://[0:0::1]/0", "redis://[::1]/0"),
            (
                "unix://localhost/a b/%20.sock?db=0",
                "unix:///a%20b/%20.sock?db=0",
            ),
        ] {
            assert_eq!(Target::parse(url).unwrap().label, label);
        }
    }

    /// What has a meaning in a URL, and some of the rest.
    const ODD: &str = "[a-z0-9:/?#@%&=.,+ \\[\\]\\-\u{0}-\u{1f}\u{7f}\u{e9}]{0,24}";

    proptest! {
        #[test]
        fn no_text_makes_it_panic_and_a_label_means_the_same_node(
            scheme in "(redis|rediss|valkey|redis\\+unix|unix)",
            start in "(|h|h:1|u:p@|\\[::1\\]|/)",
            rest in ODD,
        ) {
            if let Ok(target) = Target::parse(&format!("{scheme}://{start}{rest}")) {
                let label = &target.label;
                prop_assert!(!label.chars().any(char::is_control), "{label:?}");
                let again = Target::parse(label).unwrap();
                prop_assert_eq!(again.place, target.place);
                prop_assert_eq!(&again.label, label);
                prop_assert_eq!(again.login.db, target.login.db);
            }
        }

        #[test]
        fn no_error_shows_a_password_and_nothing_makes_it_panic(
            scheme in "(redis|redis\\+unix|redis\\+sentinel|redis\\+cluster)",
            before in ODD,
            behind in ODD,
            tail in "(|:1|:x|/m|/m/x|\\?failover=x|\\?x=y)",
        ) {
            let url = format!("{scheme}://user:{before}SECRET{behind}@h{tail}");
            let target = Target::parse(&url).map(|target| target.label);
            let group = GroupSpec::parse(&url).map(|group| group.label);
            let cluster = ClusterSpec::parse(&url).map(|cluster| cluster.label);
            for parsed in [target, group, cluster] {
                let shown = parsed.unwrap_or_else(|error| error.to_string());
                prop_assert!(!shown.contains("SECRET"), "{url}: {shown}");
            }
        }

        #[test]
        fn any_user_and_password_can_be_written(user in ".{1,8}", password in ".{0,8}") {
            let encoded = |text| utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC);
            let url = format!("redis://{}:{}@h/3", encoded(&user), encoded(&password));
            let login = Target::parse(&url).unwrap().login;
            let expected = Login { user: Some(user), password: Some(password), db: 3 };
            prop_assert_eq!(&login, &expected);
        }
    }

    #[cfg(feature = "tls")]
    #[test]
    fn rediss_means_tls() {
        let target = Target::parse("rediss://:secret@h:7/1").unwrap();
        assert!(matches!(target.place, Place::Tcp { tls: true, .. }));
        assert_eq!(target.label, "rediss://h:7/1");
    }

    #[cfg(not(feature = "tls"))]
    #[test]
    fn rediss_without_the_feature_says_which_one_is_missing() {
        let error = Target::parse("rediss://h").unwrap_err().to_string();
        assert!(error.contains("\"tls\""), "{error}");
    }
}
