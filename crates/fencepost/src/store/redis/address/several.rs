//! [`SeveralHosts`]: what the URLs of a Sentinel group and of a Redis Cluster have in common.
//!
//! No error message made here may show a password.

use std::time::Duration;

use super::url::{
    Login, MOST_REPLICAS, Place, Target, check_protocol, is_parameter, parameters, replica_count,
    seconds, split_port, without_login,
};
use crate::error::{Cause, Error};
use fencepost_core::quorum::failover::{LONGEST_FAILOVER, SHORTEST_FAILOVER};

/// One of the two kinds of URL.
pub(crate) struct Kind {
    /// Behind `redis+`, `rediss+`, `valkey+` and `valkeys+`.
    pub(crate) scheme: &'static str,
    /// How to write it.
    pub(crate) form: &'static str,
    /// What its hosts are.
    pub(crate) host: &'static str,
    /// Where such a host listens unless told otherwise.
    pub(crate) port: u16,
    /// How many of them it may have, and what to say of more.
    pub(crate) most: usize,
    pub(crate) more: &'static str,
    pub(crate) parameters: &'static [&'static str],
}

/// A URL with several hosts, in its parts.
pub(crate) struct SeveralHosts<'u> {
    kind: &'static Kind,
    url: &'u str,
    userinfo: &'u str,
    hosts: &'u str,
    query: &'u str,
    /// What stands behind the hosts, without the first slash.
    pub(crate) path: &'u str,
    pub(crate) tls: bool,
}

/// The parameters that both kinds have.
#[derive(Default)]
pub(crate) struct Common {
    /// `F` of [`failover`](fencepost_core::quorum::failover).
    pub(crate) failover: Option<Duration>,
    /// How many replicas must have a vote before it counts.
    pub(crate) replicas: u32,
}

impl<'u> SeveralHosts<'u> {
    /// # Errors
    /// [`ErrorKind::InvalidUrl`](crate::ErrorKind::InvalidUrl), as from all that follows.
    pub(crate) fn split(kind: &'static Kind, url: &'u str) -> Result<Self, Error> {
        let mut this = Self {
            kind,
            url,
            userinfo: "",
            hosts: "",
            query: "",
            path: "",
            tls: false,
        };
        let (scheme, rest) = url
            .split_once("://")
            .ok_or_else(|| this.wrong("no scheme"))?;
        this.tls = match scheme.split_once('+') {
            Some(("redis" | "valkey", of)) if of == kind.scheme => false,
            Some(("rediss" | "valkeys", of)) if of == kind.scheme => true,
            _ => return Err(this.wrong("its scheme is not known")),
        };
        if rest.contains('#') {
            let why = "it has a \"#\" part, which is not supported; a \"#\" in a password is %23";
            return Err(this.invalid(why.to_owned()));
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (userinfo, rest) = rest.rsplit_once('@').unwrap_or(("", rest));
        let (hosts, path) = rest.split_once('/').unwrap_or((rest, ""));
        Ok(Self {
            userinfo,
            hosts,
            query,
            path,
            ..this
        })
    }

    pub(crate) fn invalid(&self, why: String) -> Error {
        Error::from(Cause::InvalidUrl {
            url: without_login(self.url),
            why,
        })
    }

    /// The same, with how to write it.
    pub(crate) fn wrong(&self, why: &str) -> Error {
        self.invalid(format!("{why}; {}", self.kind.form))
    }

    /// The scheme of one of its servers.
    pub(crate) fn scheme(&self) -> &'static str {
        if self.tls { "rediss" } else { "redis" }
    }

    /// The hosts' addresses as people write them, in order, and the way to each.
    pub(crate) fn hosts(&self) -> Result<Vec<(String, Place)>, Error> {
        let Kind {
            host: what,
            port,
            most,
            more,
            ..
        } = self.kind;
        let mut hosts = Vec::new();
        for host in self.hosts.split(',') {
            let (host, given) = split_port(host.trim());
            let address = format!("{host}:{}", given.unwrap_or(port.to_string()));
            // It knows what a host is; its reasons are those of another form.
            let place = match Target::parse(&format!("{}://{address}", self.scheme())) {
                Ok(target) => target.place,
                Err(error) if error.to_string().contains("TLS is not built in") => {
                    return Err(error);
                }
                // The hosts may be the beginning of a password.
                Err(_) if self.query.contains('@') => {
                    return Err(self.wrong(&format!(
                        "a host is not a {what}'s address (percent-encode special characters)"
                    )));
                }
                Err(_) => {
                    return Err(self.wrong(&format!("{address:?} is not a {what}'s address")));
                }
            };
            hosts.push((address, place));
        }
        hosts.sort_by(|one, other| one.0.cmp(&other.0));
        if hosts.len() > *most {
            let got = hosts.len();
            return Err(self.invalid(format!("expected 1 to {most} {what}s, got {got}{more}")));
        }
        if hosts.windows(2).any(|pair| pair[0].0 == pair[1].0) {
            return Err(self.invalid(format!("duplicate {what}; list each once")));
        }
        Ok(hosts)
    }

    /// The parameters; `own` takes those that only this kind has, and says whether it is one.
    pub(crate) fn parameters(
        &self,
        mut own: impl FnMut(&str, &str) -> bool,
    ) -> Result<Common, Error> {
        let mut common = Common::default();
        for (key, value) in parameters(self.query) {
            match key.as_str() {
                "failover" => {
                    let in_range = SHORTEST_FAILOVER..=LONGEST_FAILOVER;
                    let time = seconds(&value).filter(|time| in_range.contains(time));
                    let time =
                        time.ok_or_else(|| self.wrong("failover is not a time of 1s to 600s"))?;
                    common.failover = Some(time);
                }
                "replicas" => {
                    let why = format!("replicas is not a number from 0 to {MOST_REPLICAS}");
                    common.replicas = replica_count(&value).ok_or_else(|| self.wrong(&why))?;
                }
                "protocol" => check_protocol(&value).map_err(|why| self.wrong(why))?,
                key if own(key, &value) => {}
                // It may be the rest of a password.
                key if !is_parameter(key) => return Err(self.wrong("it has an unknown parameter")),
                key => {
                    let known = self.kind.parameters.join(", ");
                    let why = format!("its parameter {key:?} is not known (known: {known})");
                    return Err(self.wrong(&why));
                }
            }
        }
        Ok(common)
    }

    /// How to log in at its servers, for this database; `why` it could not be read.
    pub(crate) fn login(&self, db: &str, why: &str) -> Result<Login, Error> {
        let at = if self.userinfo.is_empty() { "" } else { "@" };
        let target = Target::parse(&format!("redis://{}{at}h/{db}", self.userinfo));
        target.map(|target| target.login).map_err(|_| {
            self.wrong(&format!(
                "{why} cannot be read (percent-encode special characters)"
            ))
        })
    }
}
