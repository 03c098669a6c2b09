//! The address of a replica of a lock service.
//!
//! It must not contain a secret: a URL appears in process lists, logs and error messages.

use std::net::IpAddr;

use crate::error::{Cause, Error};

/// One replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) tls: bool,
    pub(super) host: String,
    pub(super) port: u16,
    /// The prefix of every request path: empty, or without a trailing slash.
    pub(super) base: String,
}

impl Address {
    /// # Errors
    /// [`ErrorKind::InvalidUrl`](crate::ErrorKind::InvalidUrl), also for a URL that would send the
    /// token and the leases over a network in plaintext.
    pub(super) fn parse(url: &str, allow_plaintext: bool) -> Result<Self, Error> {
        let fault = |shown: &str, why: &str| {
            Error::from(Cause::InvalidUrl {
                url: shown.to_owned(),
                why: why.to_owned(),
            })
        };
        let (tls, rest) = match url.split_once("://") {
            Some(("https", rest)) => (true, rest),
            Some(("http", rest)) => (false, rest),
            _ => return Err(fault("http:", "write http://HOST:PORT or https://HOST")),
        };
        // Before any of it is shown.
        if rest.contains('@') {
            let why = "it contains a user or password; a lock service takes a token, from \
                       FENCEPOST_SERVICE_TOKEN or a file";
            return Err(fault("http:", why));
        }
        if rest.contains(['?', '#']) || rest.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return Err(fault(url, "expected a host, a port and a path"));
        }
        let (authority, base) = match rest.split_once('/') {
            Some((authority, path)) => (authority, path.trim_end_matches('/')),
            None => (rest, ""),
        };
        let (host, port) = match authority.strip_prefix('[') {
            Some(rest) => match rest.split_once(']') {
                Some((host, "")) => (host, None),
                Some((host, port)) => (host, Some(port.trim_start_matches(':'))),
                None => return Err(fault(url, "\"[\" without \"]\"")),
            },
            None => match authority.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (authority, None),
            },
        };
        if host.is_empty() {
            return Err(fault(url, "it has no host"));
        }
        let port = match port {
            None if tls => 443,
            None => 80,
            Some(port) => match port.parse() {
                Ok(port) if port != 0 => port,
                _ => return Err(fault(url, "expected a port from 1 to 65535")),
            },
        };
        if !tls && !allow_plaintext && !is_loopback(host) {
            let why = "plaintext http:// over a network exposes tokens and leases; use https://, \
                       or allow plaintext";
            return Err(fault(url, why));
        }
        Ok(Self {
            tls,
            host: host.to_owned(),
            port,
            base: match base {
                "" => String::new(),
                base => format!("/{base}"),
            },
        })
    }

    /// The `Host` header.
    pub(super) fn authority(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }

    /// For display.
    pub(super) fn shown(&self) -> String {
        let scheme = if self.tls { "https" } else { "http" };
        format!("{scheme}://{}{}", self.authority(), self.base)
    }
}

fn is_loopback(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost")
        || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_host_a_port_and_maybe_a_path() {
        for (url, shown) in [
            ("http://127.0.0.1:7323", "http://127.0.0.1:7323"),
            ("http://localhost", "http://localhost:80"),
            ("http://[::1]:7323/", "http://[::1]:7323"),
            ("https://locks.example", "https://locks.example:443"),
            ("https://a.example:1/team/", "https://a.example:1/team"),
        ] {
            let address = Address::parse(url, false).expect(url);
            assert_eq!(address.shown(), shown);
        }
        for url in [
            "https://",
            "https://a:0",
            "https://a:x",
            "https://a?b",
            "http://[::1",
            "https://a b",
        ] {
            assert!(Address::parse(url, true).is_err(), "{url}");
        }
    }

    #[test]
    fn plaintext_leaves_the_machine_only_when_that_is_said() {
        let refused = Address::parse("http://10.0.0.7:7323", false).unwrap_err();
        assert!(refused.to_string().contains("https://"), "{refused}");
        assert!(Address::parse("http://10.0.0.7:7323", true).is_ok());
    }

    #[test]
    fn a_password_in_a_url_is_refused_and_not_shown() {
        let refused = Address::parse("https://me:s3cret@a", true).unwrap_err();
        let text = refused.to_string();
        assert!(text.contains("token") && !text.contains("s3cret"), "{text}");
    }
}
