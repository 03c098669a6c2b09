use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::*;

fn spawn(mut task: Task) -> JoinHandle<()> {
    tokio::spawn(std::future::poll_fn(move |cx| task.turn(cx, &mut None)))
}

/// A wire whose task runs, and the server's end of a pipe that holds so many bytes.
fn wire(holds: usize) -> (Wire, DuplexStream, JoinHandle<()>) {
    wire_that_hears(holds, None)
}

fn wire_that_hears(holds: usize, on_push: Option<OnPush>) -> (Wire, DuplexStream, JoinHandle<()>) {
    let (ours, server) = duplex(holds);
    let (wire, task) = Wire::over(Stream::over(ours), on_push);
    (wire, server, spawn(task))
}

/// What was heard on the channel `c`, in order.
fn recorded() -> (Option<OnPush>, mpsc::UnboundedReceiver<String>) {
    let (heard, news) = mpsc::unbounded_channel();
    let hear: OnPush = Box::new(move |heard_now| {
        let Push::Message(news) = heard_now else {
            panic!("no news");
        };
        assert_eq!(news.channel, b"c");
        let payload = String::from_utf8(news.payload.to_vec()).unwrap();
        heard.send(payload).unwrap();
    });
    (Some(hear), news)
}

fn published(payload: &str) -> String {
    let length = payload.len();
    format!("*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n${length}\r\n{payload}\r\n")
}

async fn next(news: &mut mpsc::UnboundedReceiver<String>) -> String {
    within_time(news.recv()).await.unwrap()
}

async fn within_time<T>(outcome: impl Future<Output = T>) -> T {
    let outcome = tokio::time::timeout(Duration::from_secs(10), outcome);
    outcome.await.unwrap()
}

fn echo(text: &str) -> Cmd {
    let mut cmd = Cmd::new("ECHO");
    cmd.arg(text);
    cmd
}

async fn read_command(server: &mut DuplexStream, expected: &Cmd) {
    let mut bytes = vec![0; expected.encoded().len()];
    server.read_exact(&mut bytes).await.unwrap();
    assert_eq!(bytes, expected.encoded());
}

fn begun(wire: &Wire, text: &str, urgency: Urgency) -> Answer {
    let append = |unwritten: &mut Vec<u8>| echo(text).write_to(unwritten);
    wire.shared.send(1, urgency, append)
}

/// The first poll sends it; the rest waits for the answer.
fn sent(wire: &Wire, text: &str) -> JoinHandle<RedisResult<Value>> {
    let answer = begun(wire, text, Urgency::Now);
    tokio::spawn(async move { within_time(answer).await.map_err(closed) })
}

#[tokio::test]
async fn each_command_gets_its_own_answer_also_behind_one_that_was_given_up() {
    let (wire, mut server, _task) = wire(1024);
    let first = sent(&wire, "a");
    sent(&wire, "b").abort();
    let third = sent(&wire, "c");
    for text in ["a", "b", "c"] {
        read_command(&mut server, &echo(text)).await;
    }
    server.write_all(b":1\r\n:2\r").await.unwrap();
    assert_eq!(first.await.unwrap().unwrap(), Value::Int(1));
    server.write_all(b"\n:3\r\n").await.unwrap();
    assert_eq!(third.await.unwrap().unwrap(), Value::Int(3));
}

/// One write for both: nothing is there before the second, and then all of it is.
#[tokio::test]
async fn a_command_that_waits_for_the_next_goes_with_it_or_soon() {
    let (wire, mut server, _task) = wire(1024);
    let both = |first: &str, second: &str| {
        let mut bytes = echo(first).encoded();
        bytes.extend(echo(second).encoded());
        bytes
    };
    let held = |text: &str| begun(&wire, text, Urgency::WithNext);
    let first = held("a");
    assert!(
        !wire.shared.outgoing().unwritten.is_empty(),
        "written at once"
    );
    let second = sent(&wire, "b");
    assert!(
        wire.shared.outgoing().unwritten.is_empty(),
        "left to the task"
    );
    let mut bytes = vec![0; both("a", "b").len()];
    within_time(server.read_exact(&mut bytes)).await.unwrap();
    assert_eq!(bytes, both("a", "b"));
    server.write_all(b":1\r\n:2\r\n").await.unwrap();
    assert_eq!(within_time(first).await.unwrap(), Value::Int(1));
    assert_eq!(second.await.unwrap().unwrap(), Value::Int(2));
    // The task has nothing to do now, and must be told.
    let alone = held("c");
    within_time(read_command(&mut server, &echo("c"))).await;
    server.write_all(b":3\r\n").await.unwrap();
    assert_eq!(within_time(alone).await.unwrap(), Value::Int(3));
}

/// It was lost with its runtime.
#[tokio::test]
async fn a_command_that_waits_for_the_next_is_written_when_the_task_goes() {
    let (wire, mut server, task) = wire(1024);
    // So that the task has been run, and waits.
    let before = sent(&wire, "a");
    server.write_all(b":1\r\n").await.unwrap();
    before.await.unwrap().unwrap();
    let held = begun(&wire, "b", Urgency::WithNext);
    task.abort();
    for text in ["a", "b"] {
        within_time(read_command(&mut server, &echo(text))).await;
    }
    assert!(within_time(held).await.is_err());
}

/// Whatever its sender could not write is written by the task, and in order.
#[tokio::test]
async fn nothing_is_lost_in_a_pipe_that_takes_a_few_bytes_at_a_time() {
    let (wire, mut server, _task) = wire(7);
    let texts: Vec<_> = (0..50)
        .map(|n| format!("{n:0>width$}", width = n * 3 + 1))
        .collect();
    let answers: Vec<_> = texts.iter().map(|text| sent(&wire, text)).collect();
    for text in &texts {
        read_command(&mut server, &echo(text)).await;
    }
    let reply = |text: &String| format!("${}\r\n{text}\r\n", text.len());
    let replies: String = texts.iter().map(reply).collect();
    server.write_all(replies.as_bytes()).await.unwrap();
    for (text, answer) in texts.iter().zip(answers) {
        let expected = Value::BulkString(text.as_bytes().to_vec());
        assert_eq!(answer.await.unwrap().unwrap(), expected);
    }
}

/// An answer that is longer than what is read at once.
#[tokio::test]
async fn a_long_answer_comes_in_one_piece() {
    let (wire, mut server, _task) = wire(64);
    let answer = sent(&wire, "a");
    read_command(&mut server, &echo("a")).await;
    let text = "x".repeat(3 * KEPT);
    let reply = format!("${}\r\n{text}\r\n", text.len());
    server.write_all(reply.as_bytes()).await.unwrap();
    let expected = Value::BulkString(text.into_bytes());
    assert_eq!(answer.await.unwrap().unwrap(), expected);
}

#[tokio::test]
async fn when_it_ends_everybody_is_told_and_nobody_else_is_taken() {
    let (wire, server, task) = wire(1024);
    let waiting = sent(&wire, "a");
    drop(server);
    assert!(waiting.await.unwrap().is_err());
    within_time(task).await.unwrap();
    let error = wire.send(&echo("b"), Urgency::Now).await.unwrap_err();
    assert!(matches!(error, RedisError::Io(_)), "{error}");
}

#[tokio::test]
async fn news_go_to_whoever_hears_them_and_answers_to_their_commands() {
    let (hear, mut news) = recorded();
    let (wire, mut server, _task) = wire_that_hears(1024, hear);
    let first = sent(&wire, "a");
    let second = sent(&wire, "b");
    let [before, between, behind] = ["before", "between", "behind"].map(published);
    let said = format!("{before}:1\r\n{between}{between}:2\r\n{behind}");
    server.write_all(said.as_bytes()).await.unwrap();
    for expected in ["before", "between", "between", "behind"] {
        assert_eq!(next(&mut news).await, expected);
    }
    assert_eq!(first.await.unwrap().unwrap(), Value::Int(1));
    assert_eq!(second.await.unwrap().unwrap(), Value::Int(2));
    // Also while nobody waits for anything.
    let later = published("later");
    server.write_all(later.as_bytes()).await.unwrap();
    assert_eq!(next(&mut news).await, "later");
}

/// Longer than what is read at once, and in a pipe that brings a few bytes at a time.
#[tokio::test]
async fn news_in_pieces_are_heard_once_and_whole() {
    for holds in [1, 7, 4096] {
        let (hear, mut news) = recorded();
        let (wire, mut server, _task) = wire_that_hears(holds, hear);
        let answer = sent(&wire, "a");
        read_command(&mut server, &echo("a")).await;
        let long = "x".repeat(3 * READ);
        let said = [published("1"), published(&long), ":1\r\n".into()].concat();
        server.write_all(said.as_bytes()).await.unwrap();
        assert_eq!(next(&mut news).await, "1");
        assert_eq!(next(&mut news).await, long);
        assert_eq!(answer.await.unwrap().unwrap(), Value::Int(1));
        assert!(news.try_recv().is_err());
    }
}

/// It ends, and takes nothing more.
async fn has_ended(wire: &Wire, task: JoinHandle<()>, said: &str) {
    within_time(task).await.unwrap();
    let answer = begun(wire, "b", Urgency::Now);
    assert!(within_time(answer).await.is_err(), "{said}");
}

#[tokio::test]
async fn news_that_nobody_hears_end_it_and_so_does_what_only_looks_like_news() {
    let no_news = "*2\r\n$7\r\nmessage\r\n$1\r\nc\r\n".to_owned();
    let (hear, mut news) = recorded();
    for (hear, asked, said) in [
        (None, false, published("1")),
        (hear, true, [published("1"), no_news].concat()),
    ] {
        let (wire, mut server, task) = wire_that_hears(1024, hear);
        let waiting = asked.then(|| sent(&wire, "a"));
        server.write_all(said.as_bytes()).await.unwrap();
        has_ended(&wire, task, &said).await;
        if let Some(waiting) = waiting {
            assert!(waiting.await.unwrap().is_err(), "{said}");
        }
    }
    assert_eq!(next(&mut news).await, "1");
}

#[tokio::test]
async fn an_answer_that_nobody_asked_for_ends_it_and_so_does_nonsense() {
    for (asked, said) in [
        (false, "+hello\r\n"),
        (true, ":1\r\n:2\r\n"),
        (true, "HTTP/1.1 400 Bad Request\r\n"),
    ] {
        let (wire, mut server, task) = wire(1024);
        let waiting = asked.then(|| sent(&wire, "a"));
        server.write_all(said.as_bytes()).await.unwrap();
        has_ended(&wire, task, said).await;
        if let Some(waiting) = waiting {
            let answer = waiting.await.unwrap();
            assert_eq!(answer.is_ok(), said.starts_with(':'), "{said}");
        }
    }
}

#[tokio::test]
async fn commands_that_were_written_as_one_are_answered_as_one_and_apart_from_others() {
    let (wire, mut server, _task) = wire(1024);
    let both = [echo("a"), echo("b")].map(|cmd| cmd.encoded()).concat();
    let answers = wire.send_encoded(&both, 2, Urgency::Now);
    let served = async {
        read_command(&mut server, &echo("a")).await;
        read_command(&mut server, &echo("b")).await;
        let last = sent(&wire, "c");
        read_command(&mut server, &echo("c")).await;
        server
            .write_all(b":1\r\n-WRONGTYPE x\r\n:3\r\n")
            .await
            .unwrap();
        last.await.unwrap().unwrap()
    };
    let (answers, last) = tokio::join!(within_time(answers), served);
    let Value::Array(answers) = answers.unwrap() else {
        panic!("no list");
    };
    assert_eq!(answers[0], Value::Int(1));
    assert!(matches!(answers[1], Value::ServerError(_)), "{answers:?}");
    assert_eq!((answers.len(), last), (2, Value::Int(3)));
}

/// Counts how often something is written.
struct Counted {
    stream: DuplexStream,
    writes: Arc<AtomicUsize>,
}

impl AsyncRead for Counted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Counted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.writes.fetch_add(1, Ordering::Relaxed);
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[tokio::test]
async fn those_who_are_answered_together_send_together() {
    const TASKS: usize = 20;
    let (ours, mut server) = duplex(1 << 16);
    let writes = Arc::<AtomicUsize>::default();
    let stream = Counted {
        stream: ours,
        writes: Arc::clone(&writes),
    };
    let (wire, task) = Wire::over(Stream::over(stream), None);
    let _task = spawn(task);
    let all: Vec<_> = (0..TASKS)
        .map(|_| {
            let wire = wire.clone();
            tokio::spawn(async move {
                for _ in 0..2 {
                    let answer = wire.send(&echo("a"), Urgency::Now).await;
                    assert_eq!(answer.unwrap(), Value::Int(1));
                }
            })
        })
        .collect();
    let answers = ":1\r\n".repeat(TASKS);
    for _ in 0..2 {
        for _ in 0..TASKS {
            within_time(read_command(&mut server, &echo("a"))).await;
        }
        server.write_all(answers.as_bytes()).await.unwrap();
    }
    for one in all {
        within_time(one).await.unwrap();
    }
    // The first few at once, each by its sender; the rest of the first round together, and all of the second.
    let writes = writes.load(Ordering::Relaxed);
    assert!(writes <= MANY + 2, "{writes} writes for {}", 2 * TASKS);
}

/// Threads that find another one writing leave their commands to it, also when the pipe is full: none stays behind.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_stays_behind_when_many_threads_send_into_a_narrow_pipe() {
    const TASKS: usize = 8;
    const TURNS: usize = 400;
    for (holds, is_alone) in [(64, false), (64, true), (1 << 16, false), (1 << 16, true)] {
        let (wire, server, _task) = wire(holds);
        if is_alone {
            wire.is_alone();
        }
        tokio::spawn(async move {
            let (incoming, mut outgoing) = tokio::io::split(server);
            let mut lines = tokio::io::AsyncBufReadExt::lines(tokio::io::BufReader::new(incoming));
            while let Some(line) = lines.next_line().await.unwrap() {
                if let Some(number) = line.strip_prefix('n') {
                    let answer = format!(":{number}\r\n");
                    outgoing.write_all(answer.as_bytes()).await.unwrap();
                }
            }
        });
        let work = |task: usize| {
            let wire = wire.clone();
            tokio::spawn(async move {
                for turn in 0..TURNS {
                    let number = (task * TURNS + turn) as i64;
                    let cmd = echo(&format!("n{number}"));
                    let answer = within_time(wire.send(&cmd, Urgency::Now)).await;
                    assert_eq!(answer.unwrap(), Value::Int(number));
                }
            })
        };
        for task in (0..TASKS).map(work).collect::<Vec<_>>() {
            task.await.unwrap();
        }
    }
}
