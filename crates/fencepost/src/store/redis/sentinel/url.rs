//! From a URL to a Sentinel group: its Sentinels, the name of its master, and how to log in at both.
//!
//! No label and no error message made here may show a password.

use std::time::Duration;

use crate::error::{Cause, Error};
use crate::store::redis::address::url::{
    Login, MOST_REPLICAS, Place, Target, check_protocol, is_parameter, parameters, replica_count,
    seconds, split_port, without_login,
};
use fencepost_core::quorum::failover::{
    FAILOVER, LONGEST_FAILOVER, MOST_SENTINELS, SHORTEST_FAILOVER,
};

const FORM: &str = "write redis+sentinel://[user]:[password]@sentinel1[:port],sentinel2,sentinel3/master-name[/db]\
                    [?sentinel_user=U][&sentinel_password=P][&failover=10s]";
/// Where a Sentinel listens unless told otherwise.
const PORT: u16 = 26_379;
const PARAMETERS: [&str; 5] = [
    "sentinel_user",
    "sentinel_password",
    "failover",
    "replicas",
    "protocol",
];

fn tls_of(scheme: &str) -> Option<bool> {
    match scheme {
        "redis+sentinel" | "valkey+sentinel" => Some(false),
        "rediss+sentinel" | "valkeys+sentinel" => Some(true),
        _ => None,
    }
}

/// A Sentinel group.
#[derive(Clone, Debug)]
pub(in super::super) struct GroupSpec {
    /// The Sentinels' addresses as people write them, and the way to each.
    pub(super) sentinels: Vec<(String, Place)>,
    /// How to log in at a Sentinel.
    pub(super) sentinel_login: Login,
    /// Under which name they know the master.
    pub(super) name: String,
    /// How to log in at the master.
    pub(super) login: Login,
    pub(super) tls: bool,
    /// How many replicas must have a vote before it counts.
    pub(in super::super) replicas: u32,
    /// `F` of [`failover`](fencepost_core::quorum::failover).
    pub(super) failover: Duration,
    /// The URL in the form that all clients of the group share: without user and password.
    pub(in super::super) label: String,
}

impl GroupSpec {
    /// # Errors
    /// [`ErrorKind::InvalidUrl`](crate::ErrorKind::InvalidUrl) says what would be right.
    pub(in super::super) fn parse(url: &str) -> Result<Self, Error> {
        let invalid = |why: String| {
            Error::from(Cause::InvalidUrl {
                url: without_login(url),
                why,
            })
        };
        let wrong = |why: &str| invalid(format!("{why}; {FORM}"));
        let (scheme, rest) = url.split_once("://").ok_or_else(|| wrong("no scheme"))?;
        let tls = tls_of(scheme).ok_or_else(|| wrong("its scheme is not known"))?;
        if rest.contains('#') {
            let why = "it has a \"#\" part, which is not supported; a \"#\" in a password is %23";
            return Err(invalid(why.to_owned()));
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (userinfo, rest) = rest.rsplit_once('@').unwrap_or(("", rest));
        let (hosts, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (name, db) = path.split_once('/').unwrap_or((path, ""));
        if name.is_empty() {
            return Err(wrong("it does not say the name of the master"));
        }
        let is_known = |c: char| c.is_ascii_alphanumeric() || ".-_".contains(c);
        if !name.chars().all(is_known) {
            return Err(wrong(
                "the name of the master has a character that no Sentinel takes",
            ));
        }
        let mut sentinels = Vec::new();
        for host in hosts.split(',') {
            let (host, port) = split_port(host.trim());
            let port = port.unwrap_or(PORT.to_string());
            let address = format!("{host}:{port}");
            let scheme = if tls { "rediss" } else { "redis" };
            // It knows what a host is; its reasons are those of another form.
            let place = match Target::parse(&format!("{scheme}://{address}")) {
                Ok(target) => target.place,
                Err(error) if error.to_string().contains("TLS is not built in") => {
                    return Err(error);
                }
                // The hosts may be the beginning of a password.
                Err(_) if query.contains('@') => {
                    return Err(wrong(
                        "a host is not a Sentinel's address (percent-encode special characters)",
                    ));
                }
                Err(_) => return Err(wrong(&format!("{address:?} is not a Sentinel's address"))),
            };
            sentinels.push((address, place));
        }
        sentinels.sort_by(|one, other| one.0.cmp(&other.0));
        if sentinels.len() > MOST_SENTINELS {
            let (most, got) = (MOST_SENTINELS, sentinels.len());
            return Err(invalid(format!(
                "expected 1 to {most} Sentinels, got {got}"
            )));
        }
        if sentinels.windows(2).any(|pair| pair[0].0 == pair[1].0) {
            return Err(invalid("duplicate Sentinel; list each once".to_owned()));
        }
        let (mut user, mut password, mut failover, mut replicas) = (None, None, FAILOVER, 0);
        for (key, value) in parameters(query) {
            match key.as_str() {
                "sentinel_user" => user = Some(value),
                "sentinel_password" => password = Some(value),
                "failover" => {
                    let in_range = SHORTEST_FAILOVER..=LONGEST_FAILOVER;
                    failover = seconds(&value)
                        .filter(|time| in_range.contains(time))
                        .ok_or_else(|| wrong("failover is not a time of 1s to 600s"))?;
                }
                "replicas" => {
                    replicas = replica_count(&value).ok_or_else(|| {
                        wrong(&format!(
                            "replicas is not a number from 0 to {MOST_REPLICAS}"
                        ))
                    })?;
                }
                "protocol" => check_protocol(&value).map_err(wrong)?,
                // It may be the rest of a password.
                _ if !is_parameter(&key) => return Err(wrong("it has an unknown parameter")),
                _ => {
                    let known = PARAMETERS.join(", ");
                    let why = format!("its parameter {key:?} is not known (known: {known})");
                    return Err(wrong(&why));
                }
            }
        }
        if user.is_some() && password.is_none() {
            return Err(wrong("it has a sentinel_user without a sentinel_password"));
        }
        let at = if userinfo.is_empty() { "" } else { "@" };
        let master = format!("redis://{userinfo}{at}h/{db}");
        let master = Target::parse(&master).map_err(|_| {
            wrong("its user, password or database number cannot be read (percent-encode special characters)")
        })?;
        let sentinel_login = Login {
            user,
            password,
            db: 0,
        };
        let addresses: Vec<_> = sentinels
            .iter()
            .map(|(address, _)| address.as_str())
            .collect();
        let scheme = if tls { "rediss" } else { "redis" };
        let mut label = format!("{scheme}+sentinel://{}/{name}", addresses.join(","));
        if master.login.db != 0 {
            label += &format!("/{}", master.login.db);
        }
        if failover != FAILOVER {
            // All clients of a group have to agree on it.
            label += &format!("?failover={}s", failover.as_secs());
        }
        Ok(Self {
            sentinels,
            sentinel_login,
            name: name.to_owned(),
            login: master.login,
            tls,
            replicas,
            failover,
            label,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_forms_that_people_use_are_understood() {
        for (url, label, hosts, name, db) in [
            (
                "redis+sentinel://b,a:1/mymaster",
                "redis+sentinel://a:1,b:26379/mymaster",
                2,
                "mymaster",
                0,
            ),
            (
                "valkey+sentinel://u:p@[::1]:7,[::2]/m.y-m_1/3?failover=2s",
                "redis+sentinel://[::1]:7,[::2]:26379/m.y-m_1/3?failover=2s",
                2,
                "m.y-m_1",
                3,
            ),
            (
                "redis+sentinel://h/m?sentinel_user=s&sentinel_password=t&protocol=resp3",
                "redis+sentinel://h:26379/m",
                1,
                "m",
                0,
            ),
        ] {
            let group = GroupSpec::parse(url).unwrap();
            assert_eq!(group.label, label);
            assert_eq!(group.sentinels.len(), hosts, "{url}");
            assert_eq!((group.name.as_str(), group.login.db), (name, db));
            // What all clients share is a URL too.
            assert_eq!(GroupSpec::parse(label).unwrap().label, label);
        }
    }

    #[test]
    fn each_tier_has_its_own_user_and_password() {
        let url = "redis+sentinel://app:p%40ss@h/m?sentinel_user=watch&sentinel_password=s%26t";
        let group = GroupSpec::parse(url).unwrap();
        assert_eq!(group.login.user.as_deref(), Some("app"));
        assert_eq!(group.login.password.as_deref(), Some("p@ss"));
        assert_eq!(group.sentinel_login.user.as_deref(), Some("watch"));
        assert_eq!(group.sentinel_login.password.as_deref(), Some("s&t"));
        assert!(!group.label.contains("app") && !group.label.contains("watch"));
    }

    #[test]
    fn a_bad_url_is_refused_with_what_would_be_right_and_without_its_password() {
        for (url, why) in [
            ("redis+sentinel://:secret@h", "name of the master"),
            ("redis+sentinel://:secret@h/", "name of the master"),
            ("redis+sentinel://:secret@h/m,x", "no Sentinel takes"),
            ("redis+sentinel://:secret@h/m/x", "database number"),
            ("redis+sentinel://:secret@h:x/m", "not a Sentinel's address"),
            ("redis+sentinel://:secret@/m", "not a Sentinel's address"),
            ("redis+sentinel://h,h:26379/m", "duplicate"),
            ("redis+sentinel://h/m?pass=secret", "not known"),
            ("redis+sentinel://h/m?failover=0", "1s to 600s"),
            ("redis+sentinel://h/m?failover=secret", "1s to 600s"),
            ("redis+sentinel://h/m?sentinel_user=u", "sentinel_password"),
            ("redis+sentinel://a,b,c,d,e,f,g,h,i,j/m", "got 10"),
            ("redis+sentinel://h/m#secret", "%23"),
        ] {
            let error = GroupSpec::parse(url).unwrap_err();
            assert_eq!(error.kind(), crate::ErrorKind::InvalidUrl);
            let text = error.to_string();
            assert!(text.contains(why), "{url}: {text}");
            assert!(!text.contains("secret"), "{url}: {text}");
        }
    }
}
