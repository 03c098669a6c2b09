use std::future::Future;
use std::num::NonZeroU32;

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

use super::*;
use crate::runtime::clock::SystemClock;
use crate::store::redis::address::stream::Stream;
use crate::store::redis::encoding::keys::Prefix;
use crate::store::redis::protocol::wire::Wire;
use fencepost_core::lock::Repair;
use fencepost_core::name::LockName;
use fencepost_core::token::FencingToken;
use fencepost_core::ttl::Ttl;

const NO_SCRIPT: &[u8] = b"-NOSCRIPT No matching script.\r\n";
const RELEASED: &[u8] = b"$8\r\nreleased\r\n";

/// A link, and the keys of a lock.
struct Client {
    link: Link,
    keys: Keys,
}

impl Client {
    /// And the server's end of its connection.
    fn new() -> (Self, DuplexStream) {
        let (ours, server) = duplex(1 << 20);
        let (wire, task) = Wire::over(Stream::over(ours), None);
        let mut task = task;
        tokio::spawn(std::future::poll_fn(move |cx| task.turn(cx, &mut None)));
        let link = Link::new(Connection::new(wire), None, SystemClock.now());
        let name = LockName::new("job").unwrap();
        let keys = Prefix::new("").unwrap().keys(&name).unwrap();
        (Self { link, keys }, server)
    }

    async fn perform(&self, command: &Command) -> Result<Reply, NodeError> {
        let name = LockName::new("job").unwrap();
        let prepared = Prepared::new(&Prefix::new("").unwrap(), &name, command.clone()).unwrap();
        within_time(self.link.perform(&prepared, &SystemClock)).await
    }
}

async fn within_time<T>(outcome: impl Future<Output = T>) -> T {
    timeout(Duration::from_secs(10), outcome).await.unwrap()
}

fn extend(value: &str) -> Command {
    Command::Extend {
        value: AttemptValue::reported(value),
        ttl: Ttl::new(Duration::from_secs(60)).unwrap(),
        token: FencingToken::new(1).unwrap(),
        entries: NonZeroU32::MIN,
        repair: Repair::Always,
    }
}

fn release(value: &str) -> Command {
    Command::Release {
        value: AttemptValue::reported(value),
        tombstone: None,
        ticket: TicketDisposition::Stays,
        follower: None,
        is_lease: false,
    }
}

/// The server is sent this, and answers that.
async fn exchange(server: &mut DuplexStream, cmd: &Cmd, answer: &[u8]) {
    let expected = cmd.encoded();
    let mut bytes = vec![0; expected.len()];
    within_time(server.read_exact(&mut bytes)).await.unwrap();
    assert_eq!(bytes, expected, "{}", bytes.escape_ascii());
    server.write_all(answer).await.unwrap();
}

/// Whoever is dropped before it could give it back again would leave the lock to nobody.
#[tokio::test]
async fn what_was_released_is_not_even_sent_again() {
    let (client, mut server) = Client::new();
    let (taken, released) = (extend("a"), release("a"));
    let scripted = async {
        let keys = &client.keys;
        exchange(&mut server, &scripts::by_digest(&taken, keys), b"").await;
        let answers = [NO_SCRIPT, RELEASED].concat();
        exchange(&mut server, &scripts::by_digest(&released, keys), &answers).await;
    };
    let calls = async { tokio::join!(client.perform(&taken), client.perform(&released)) };
    let (outcomes, ()) = tokio::join!(calls, scripted);
    let expected = (Ok(Reply::NotHeld(None)), Ok(Reply::Released));
    assert_eq!(outcomes, expected);
    // The next that the server sees is the next command.
    let next = release("b");
    let cmd = scripts::by_digest(&next, &client.keys);
    let seen = exchange(&mut server, &cmd, RELEASED);
    let (outcome, ()) = tokio::join!(client.perform(&next), seen);
    assert_eq!(outcome, Ok(Reply::Released));
}

/// Nobody can tell which of the two the server had first.
#[tokio::test]
async fn what_is_released_while_it_is_sent_again_is_released_once_more() {
    let (client, mut server) = Client::new();
    let (taken, released) = (extend("a"), release("a"));
    let scripted = async {
        let keys = &client.keys;
        exchange(&mut server, &scripts::by_digest(&taken, keys), NO_SCRIPT).await;
        let again = scripts::by_source(&taken, keys);
        exchange(&mut server, &again, b"").await;
        let release = client.perform(&released);
        let answered = async {
            let release = scripts::by_digest(&released, keys);
            exchange(&mut server, &release, b"$8\r\nrepaired\r\n").await;
            server.write_all(RELEASED).await.unwrap();
            let once_more = scripts::by_digest(&released, keys);
            exchange(&mut server, &once_more, RELEASED).await;
        };
        let (outcome, ()) = tokio::join!(release, answered);
        assert_eq!(outcome, Ok(Reply::Released));
    };
    let (outcome, ()) = tokio::join!(client.perform(&taken), scripted);
    assert_eq!(outcome, Ok(Reply::NotHeld(None)));
}

/// It was called given back, and a lease was lost that nobody had touched.
#[tokio::test]
async fn a_command_is_not_called_released_because_many_others_were() {
    let (client, mut server) = Client::new();
    let taken = extend("a");
    let others: Vec<_> = (0..2000).map(|n| release(&format!("other-{n}"))).collect();
    let releases = async {
        let releases = others.iter().map(|release| client.perform(release));
        futures_util::future::join_all(releases).await
    };
    let scripted = async {
        let keys = &client.keys;
        exchange(&mut server, &scripts::by_digest(&taken, keys), NO_SCRIPT).await;
        for release in &others {
            let release = scripts::by_digest(release, keys);
            exchange(&mut server, &release, RELEASED).await;
        }
    };
    let (outcome, _, ()) = tokio::join!(client.perform(&taken), releases, scripted);
    assert!(outcome.is_err_and(|error| !error.is_uncertain()));
}

/// A PING waits for its turn behind all that was sent before it. The connection was given up while
/// one answer came after the other, because nobody waited for them any more.
#[tokio::test(start_paused = true)]
async fn a_server_that_is_behind_is_not_mute() {
    const LIMIT: Duration = Duration::from_secs(1);
    let (client, mut server) = Client::new();
    for _ in 0..20 {
        let command = extend("a");
        let answer = timeout(Duration::ZERO, client.perform(&command));
        assert!(answer.await.is_err());
    }
    let answers = async {
        for _ in 0..20 {
            sleep(LIMIT / 4).await;
            server.write_all(b"$8\r\nextended\r\n").await.unwrap();
        }
    };
    tokio::select! {
        biased;
        reason = client.link.until_useless(LIMIT, &SystemClock) => panic!("{reason}"),
        () = answers => {}
    }
    // Now it is.
    let useless = client.link.until_useless(LIMIT, &SystemClock);
    assert!(matches!(
        within_time(useless).await,
        NodeError::Disconnected(_)
    ));
}
