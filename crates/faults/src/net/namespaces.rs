//! Network namespaces on one bridge, and silent one-way cuts between them.
//!
//! A cut is a wrong hardware address for one neighbour, kept in the sender's own table: what is
//! sent to it leaves, and is for nobody. Neither side is told. It must never touch the machine's own
//! network: the bridge, too, is in a namespace of ours.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::{End, Link};
use crate::reaper::{self, Trace};

/// A hardware address that nobody has.
const NOBODY: &str = "02:00:00:00:00:99";
/// The interface in each namespace.
const DEVICE: &str = "v";

#[derive(Debug)]
pub(super) struct Namespaces {
    /// The bridge's, and then one for each end.
    names: Vec<String>,
    places: BTreeMap<End, Place>,
}

#[derive(Debug)]
struct Place {
    namespace: String,
    address: Ipv4Addr,
    hardware: String,
}

impl Namespaces {
    pub(super) fn make(ends: &[End]) -> io::Result<Self> {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let prefix = format!("fencepost-{}-{number}", std::process::id());
        let bridge = format!("{prefix}-bridge");
        let mut all = Self {
            names: Vec::new(),
            places: BTreeMap::new(),
        };
        all.add(&bridge)?;
        ip(
            Some(&bridge),
            "link add bridge type bridge\nlink set bridge up",
        )?;
        for (i, end) in ends.iter().enumerate() {
            let (namespace, host) = match end {
                End::Node(n) => (format!("{prefix}-node{n}"), 10 + *n),
                End::Client(n) => (format!("{prefix}-client{n}"), 100 + *n),
            };
            let host = u8::try_from(host).map_err(|_| io::ErrorKind::InvalidInput)?;
            let address = Ipv4Addr::new(10, 213, 0, host);
            let hardware = format!("02:00:00:00:01:{host:02x}");
            all.add(&namespace)?;
            ip(
                Some(&bridge),
                &format!(
                    "link add p{i} type veth peer name {DEVICE} address {hardware} \
                     netns {namespace}\n\
                     link set p{i} master bridge up"
                ),
            )?;
            ip(
                Some(&namespace),
                &format!(
                    "addr add {address}/24 dev {DEVICE}\n\
                     link set {DEVICE} up\n\
                     link set lo up"
                ),
            )?;
            let place = Place {
                namespace,
                address,
                hardware,
            };
            all.places.insert(*end, place);
        }
        Ok(all)
    }

    fn add(&mut self, name: &str) -> io::Result<()> {
        ip(None, &format!("netns add {name}"))?;
        reaper::expect(&Trace::Namespace(name.to_owned()));
        self.names.push(name.to_owned());
        Ok(())
    }

    fn place(&self, end: End) -> io::Result<&Place> {
        self.places
            .get(&end)
            .ok_or_else(|| io::Error::other(format!("{end:?} has no namespace")))
    }

    pub(super) fn address(&self, end: End) -> IpAddr {
        let place = self.places.get(&end);
        place
            .map_or(Ipv4Addr::UNSPECIFIED, |place| place.address)
            .into()
    }

    pub(super) fn command(&self, end: End, program: &Path) -> Command {
        let namespace = self.places.get(&end).map(|place| &place.namespace);
        let mut command = Command::new("ip");
        command.args(["netns", "exec"]);
        command.args(namespace).arg(program);
        command
    }

    /// A socket stays where it was made; so a thread goes there, makes it, and ends.
    pub(super) fn listen(&self, end: End, address: IpAddr, port: u16) -> io::Result<TcpListener> {
        let path = format!("/run/netns/{}", self.place(end)?.namespace);
        let enter_and_listen = move || {
            let namespace = std::fs::File::open(path)?;
            let network = Some(LinkNameSpaceType::Network);
            move_into_link_name_space(std::os::fd::AsFd::as_fd(&namespace), network)?;
            TcpListener::bind((address, port))
        };
        std::thread::spawn(enter_and_listen)
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("the thread panicked")))
    }

    pub(super) fn set_links(&self, links: &[(End, End)], link: Link) -> io::Result<()> {
        // All changes in one table at once: a process for each would take longer than a short cut.
        let mut changes: BTreeMap<&str, String> = BTreeMap::new();
        for (from, to) in links {
            let (from, to) = (self.place(*from)?, self.place(*to)?);
            let hardware = match link {
                Link::Cut => NOBODY,
                Link::Whole => &to.hardware,
            };
            let lines = changes.entry(&from.namespace).or_default();
            lines.push_str(&format!(
                "neigh replace {} lladdr {hardware} dev {DEVICE} nud permanent\n",
                to.address
            ));
        }
        for (namespace, lines) in changes {
            ip(Some(namespace), &lines)?;
        }
        Ok(())
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for name in &self.names {
            // Nobody is left to be told; the reaper tries once more.
            if ip(None, &format!("netns del {name}")).is_ok() {
                reaper::forget(&Trace::Namespace(name.clone()));
            }
        }
    }
}

/// Runs lines of the program `ip`, in a namespace or in the machine's own.
fn ip(namespace: Option<&str>, lines: &str) -> io::Result<()> {
    let mut command = Command::new("ip");
    if let Some(namespace) = namespace {
        command.args(["-n", namespace]);
    }
    let mut child = command
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    if let Some(mut input) = child.stdin.take() {
        writeln!(input, "{lines}")?;
    }
    let output = child.wait_with_output()?;
    if output.status.success() {
        return Ok(());
    }
    let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(io::Error::other(format!("ip {lines:?}: {why}")))
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::TcpStream;
    use std::time::Duration;

    use super::*;

    /// Skips, aloud, where there are no namespaces.
    fn two() -> Option<Namespaces> {
        let made = Namespaces::make(&[End::Node(0), End::Client(0)]);
        if let Err(why) = &made {
            println!("skipped, no network namespaces: {why}");
        }
        made.ok()
    }

    fn connect(from: &Namespaces, address: std::net::SocketAddr) -> io::Result<TcpStream> {
        let path = format!("/run/netns/{}", from.place(End::Client(0))?.namespace);
        std::thread::spawn(move || {
            let namespace = std::fs::File::open(path)?;
            let network = Some(LinkNameSpaceType::Network);
            move_into_link_name_space(std::os::fd::AsFd::as_fd(&namespace), network)?;
            TcpStream::connect_timeout(&address, Duration::from_secs(5))
        })
        .join()
        .unwrap()
    }

    #[test]
    fn a_cut_is_silent_and_one_way() {
        let Some(net) = two() else { return };
        let (node, client) = (End::Node(0), End::Client(0));
        let listener = net.listen(node, net.address(node), 0).unwrap();
        let mut near = connect(&net, listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        let soon = Some(Duration::from_millis(300));
        let long = Some(Duration::from_secs(10));
        let mut one = [0];

        net.set_links(&[(node, client)], Link::Cut).unwrap();
        near.write_all(b"a").unwrap();
        far.set_read_timeout(long).unwrap();
        far.read_exact(&mut one).unwrap();
        far.write_all(b"b").unwrap();
        near.set_read_timeout(soon).unwrap();
        assert!(near.read_exact(&mut one).is_err(), "nothing comes back");

        net.set_links(&[(node, client)], Link::Whole).unwrap();
        near.set_read_timeout(long).unwrap();
        near.read_exact(&mut one).unwrap();
        assert_eq!(&one, b"b", "sent again by the kernel");
    }

    #[test]
    fn nothing_is_left_of_the_namespaces() {
        let Some(net) = two() else { return };
        let names = net.names.clone();
        drop(net);
        for name in names {
            assert!(!Path::new("/run/netns").join(name).exists());
        }
    }
}
