//! From a URL to a Sentinel group: its Sentinels, the name of its master, and how to log in at both.
//!
//! No label and no error message made here may show a password.

use std::time::Duration;

use crate::error::Error;
use crate::store::redis::address::several::{Kind, SeveralHosts};
use crate::store::redis::address::url::{Login, Place};
use fencepost_core::quorum::failover::{FAILOVER, MOST_SENTINELS};

const KIND: Kind = Kind {
    scheme: "sentinel",
    form: "write redis+sentinel://[user]:[password]@sentinel1[:port],sentinel2,sentinel3/master-name[/db]\
           [?sentinel_user=U][&sentinel_password=P][&failover=10s]",
    host: "Sentinel",
    port: 26_379,
    most: MOST_SENTINELS,
    more: "",
    parameters: &[
        "sentinel_user",
        "sentinel_password",
        "failover",
        "replicas",
        "protocol",
    ],
};

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
        let parts = SeveralHosts::split(&KIND, url)?;
        let (name, db) = parts.path.split_once('/').unwrap_or((parts.path, ""));
        if name.is_empty() {
            return Err(parts.wrong("it does not say the name of the master"));
        }
        let is_known = |c: char| c.is_ascii_alphanumeric() || ".-_".contains(c);
        if !name.chars().all(is_known) {
            let why = "the name of the master has a character that no Sentinel takes";
            return Err(parts.wrong(why));
        }
        let sentinels = parts.hosts()?;
        let (mut user, mut password) = (None, None);
        let common = parts.parameters(|key, value| {
            let own = match key {
                "sentinel_user" => &mut user,
                "sentinel_password" => &mut password,
                _ => return false,
            };
            *own = Some(value.to_owned());
            true
        })?;
        if user.is_some() && password.is_none() {
            return Err(parts.wrong("it has a sentinel_user without a sentinel_password"));
        }
        let login = parts.login(db, "its user, password or database number")?;
        let failover = common.failover.unwrap_or(FAILOVER);
        let sentinel_login = Login {
            user,
            password,
            db: 0,
        };
        let addresses: Vec<_> = sentinels
            .iter()
            .map(|(address, _)| address.as_str())
            .collect();
        let scheme = parts.scheme();
        let mut label = format!("{scheme}+sentinel://{}/{name}", addresses.join(","));
        if login.db != 0 {
            label += &format!("/{}", login.db);
        }
        if failover != FAILOVER {
            // All clients of a group have to agree on it.
            label += &format!("?failover={}s", failover.as_secs());
        }
        Ok(Self {
            sentinels,
            sentinel_login,
            name: name.to_owned(),
            login,
            tls: parts.tls,
            replicas: common.replicas,
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
