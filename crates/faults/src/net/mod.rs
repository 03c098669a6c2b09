//! Where servers and clients live: each in a network namespace of its own, or all on loopback.
//!
//! - `namespaces`: the namespaces, the bridge between them, and silent cuts from one to another.
//!
//! Namespaces need root and `ip`. Without them everything runs on loopback, where nothing can be cut
//! without a proxy; [`Network::kind`] says which it is.

#[cfg(target_os = "linux")]
mod namespaces;
#[cfg(not(target_os = "linux"))]
#[path = "no_namespaces.rs"]
mod namespaces;

use std::io;
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::Command;

use namespaces::Namespaces;

/// One end of the wire between a client and a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum End {
    /// A node, by its number.
    Node(usize),
    /// A client, by its number.
    Client(usize),
}

/// Where servers and clients live.
#[derive(Debug)]
pub struct Network {
    namespaces: Option<Namespaces>,
}

impl Network {
    /// Namespaces if they can be had, else loopback.
    #[must_use]
    pub fn lay(nodes: usize, clients: usize) -> Self {
        let ends = (0..nodes).map(End::Node);
        let ends: Vec<End> = ends.chain((0..clients).map(End::Client)).collect();
        Self {
            // Whatever the reason, the kind tells that there are none.
            namespaces: Namespaces::make(&ends).ok(),
        }
    }

    /// Loopback, for whoever needs no namespaces.
    #[must_use]
    pub const fn loopback() -> Self {
        Self { namespaces: None }
    }

    /// What it is, for the report.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self.namespaces {
            Some(_) => "a network namespace for each server and each client",
            None => "plain loopback, because network namespaces need Linux, root and `ip`",
        }
    }

    /// Whether one end can be cut off from another.
    #[must_use]
    pub const fn can_cut(&self) -> bool {
        self.namespaces.is_some()
    }

    /// The address of an end.
    #[must_use]
    pub fn address(&self, end: End) -> IpAddr {
        match &self.namespaces {
            Some(namespaces) => namespaces.address(end),
            None => Ipv4Addr::LOCALHOST.into(),
        }
    }

    /// A program, to be started at that end.
    #[must_use]
    pub fn command(&self, end: End, program: &Path) -> Command {
        match &self.namespaces {
            Some(namespaces) => namespaces.command(end, program),
            None => Command::new(program),
        }
    }

    /// A listener at that end: at its own address or, `inside`, at its loopback. Port 0 is any.
    ///
    /// # Errors
    /// When the port is taken, or the namespace cannot be entered.
    pub fn listen(&self, end: End, inside: Inside, port: u16) -> io::Result<TcpListener> {
        let address = match inside {
            Inside::Yes => Ipv4Addr::LOCALHOST.into(),
            Inside::No => self.address(end),
        };
        match &self.namespaces {
            Some(namespaces) => namespaces.listen(end, address, port),
            None => TcpListener::bind((address, port)),
        }
    }

    /// A port on which nobody listens at the moment.
    ///
    /// # Errors
    /// When there is none.
    pub fn free_port(&self, end: End, inside: Inside) -> io::Result<u16> {
        Ok(self.listen(end, inside, 0)?.local_addr()?.port())
    }

    /// From now on, what the first of each pair sends to the second does not reach it, and neither
    /// is told; or it does again.
    ///
    /// # Errors
    /// When that cannot be done.
    pub fn set_links(&self, links: &[(End, End)], link: Link) -> io::Result<()> {
        self.namespaces()?.set_links(links, link)
    }

    fn namespaces(&self) -> io::Result<&Namespaces> {
        let missing = || io::Error::new(io::ErrorKind::Unsupported, self.kind());
        self.namespaces.as_ref().ok_or_else(missing)
    }
}

/// The state of a link, in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// What is sent vanishes.
    Cut,
    /// What is sent arrives.
    Whole,
}

/// Whether others can reach a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inside {
    /// Only who is at the same end.
    Yes,
    /// Everybody.
    No,
}
