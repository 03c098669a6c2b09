//! A process that takes a lock again and again, works under it, and writes down what it saw.
//!
//! It tells the truth and nothing else: every event is written when it happens, with the boot clock,
//! and what it does not know (a release that nobody answered) it calls unknown. It never decides
//! whether something was right.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use clap::{Args, ValueEnum};
use fencepost::{Client, Error, ErrorKind, InitOptions, Lease, RestartPolicy};
use fencepost_checks::{Change, ClientId, Event, History, LeaseId, LeaseRef, Outcome, Step, Time};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::sync::watch;

use crate::now::now;
use crate::random::Random;
use crate::resource::{Answer, Question};

/// How often the process looks whether it has been standing still, and how much later than that is
/// called so.
const TICK: Duration = Duration::from_millis(5);
const STOOD_STILL: Duration = Duration::from_millis(20);
/// How often a holder looks whether its lease has been renewed.
const LOOK: Duration = Duration::from_millis(8);
/// A new end of validity that is not further away than this is the same one.
const SAME_END: Duration = Duration::from_millis(2);

/// How a client asks and works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Manner {
    /// Waits for the lock and works briefly, without a look at its lease: as most programs do.
    Wait,
    /// Waits, and now and then works longer than the TTL, so that only renewal keeps the lock; stops
    /// when that is lost.
    Careful,
    /// Tries without waiting, and extends by hand; without a look at its lease.
    Try,
    /// As the careful one, but goes on when the lock is lost.
    Careless,
    /// Waits, detaches the lock, and extends it over two connections, by a short TTL and by a long one.
    Detached,
}

/// By how much a detached lock is extended: the short one is sent first.
const SHORT: Duration = Duration::from_millis(317);
const LONG: Duration = Duration::from_millis(1000);
/// How the short TTL looks on its way to a node, and nothing else does.
pub const SHORT_TTL_WORDS: &[u8] = b"\r\n317\r\n";
/// How long the short extension has to leave before the long one does.
const BEFORE_THE_LONG_ONE: Duration = Duration::from_millis(15);
/// How long before its end a detached lock is released at the latest.
const MARGIN: Duration = Duration::from_millis(40);

/// What a client is told on its command line.
#[derive(Clone, Debug, Args)]
pub struct ClientOptions {
    /// Its number, unique in a run.
    #[arg(long)]
    pub id: u32,
    /// The nodes.
    #[arg(long)]
    pub urls: String,
    /// The lock that it wants.
    #[arg(long)]
    pub lock: String,
    /// The TTL, in milliseconds.
    #[arg(long)]
    pub ttl: u64,
    /// The longest TTL of all, in milliseconds.
    #[arg(long)]
    pub max_ttl: u64,
    /// How it asks and works.
    #[arg(long)]
    pub manner: Manner,
    /// Whether restarted servers are trusted at once.
    #[arg(long)]
    pub trust: bool,
    /// Whether it wants to be served in its turn.
    #[arg(long)]
    pub fair: bool,
    /// Forks while it holds the lock, and writes a byte to this file each time.
    #[arg(long)]
    pub forks: Option<PathBuf>,
    /// Where to write what it saw.
    #[arg(long)]
    pub history: PathBuf,
    /// The socket of the resource that the lock guards.
    #[arg(long)]
    pub resource: PathBuf,
}

/// What replaces a cluster by another.
#[derive(Clone, Debug, Args)]
pub struct InitJob {
    /// The nodes of the new one.
    #[arg(long)]
    pub urls: String,
    /// The nodes of the old one.
    #[arg(long)]
    pub replace: String,
    /// The longest TTL of all, in milliseconds.
    #[arg(long)]
    pub max_ttl: u64,
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Replaces a cluster by another.
///
/// # Errors
/// When a node refuses.
pub fn init(job: InitJob) -> Result<(), Failure> {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let builder = Client::builder()
        .url(&job.urls)
        .max_ttl(Duration::from_millis(job.max_ttl));
    let replace = InitOptions::new().replace(&job.replace);
    let runtime = runtime.enable_all().build()?;
    Ok(runtime.block_on(builder.init(replace))?)
}

/// Runs until the standard input ends.
///
/// # Errors
/// When it cannot work at all. A lock that it does not get is no error.
pub fn run(options: ClientOptions) -> Result<(), Failure> {
    // One thread: when that stands still, everything does, and it knows for how long.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let (stop, stopped) = watch::channel(false);
        std::thread::spawn(move || {
            let mut rest = Vec::new();
            // However the input ends, it is the end.
            let _ = io::stdin().read_to_end(&mut rest);
            stop.send_replace(true);
        });
        let client = LockClient::new(options, stopped).await?;
        tokio::spawn(notice_standing_still(client.scribe.clone()));
        client.work().await
    })
}

/// Writes down what happens.
#[derive(Debug)]
struct Scribe {
    client: ClientId,
    file: Mutex<File>,
}

impl Scribe {
    fn write(&self, event: &Event) {
        let file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        // Without its history a client proves nothing, and must not look as if it did.
        if History::write(&*file, event).is_err() {
            std::process::abort();
        }
    }

    fn step(&self, of: &LeaseRef, step: Step) {
        self.write(&Event::lease(now(), of, step));
    }
}

/// Writes down when the process stood still: stopped, or without a processor.
async fn notice_standing_still(scribe: Arc<Scribe>) {
    let mut last = now();
    loop {
        tokio::time::sleep(TICK).await;
        let this = now();
        if this > last.after(TICK + STOOD_STILL) {
            scribe.write(&Event::client(last, scribe.client, Change::Paused));
            scribe.write(&Event::client(this, scribe.client, Change::Resumed));
        }
        last = this;
    }
}

struct LockClient {
    options: ClientOptions,
    ttl: Duration,
    locks: Client,
    /// The same over connections of its own: what is late there is in nobody's way.
    second: Client,
    scribe: Arc<Scribe>,
    resource: BufReader<UnixStream>,
    stopped: watch::Receiver<bool>,
    random: Random,
    turns: u64,
    /// The end of the present lease, as it was last written down.
    known_until: Time,
}

impl LockClient {
    async fn new(options: ClientOptions, stopped: watch::Receiver<bool>) -> Result<Self, Failure> {
        let ttl = Duration::from_millis(options.ttl);
        let policy = match options.trust {
            true => RestartPolicy::Trust,
            false => RestartPolicy::Delay,
        };
        let client = || {
            Client::builder()
                .url(&options.urls)
                .owner(format!("client-{}", options.id))
                .restart_policy(policy)
                .max_ttl(Duration::from_millis(options.max_ttl))
                .node_timeout(ttl / 4)
                .connect_timeout(ttl / 2)
                // A replica of the lock service may have an address of its own.
                .allow_plaintext(true)
                .build()
        };
        let locks = client()?;
        let second = match options.manner {
            Manner::Detached => client()?,
            _ => locks.clone(),
        };
        let history = File::options()
            .create(true)
            .append(true)
            .open(&options.history)?;
        let scribe = Scribe {
            client: ClientId(options.id),
            file: Mutex::new(history),
        };
        let resource = BufReader::new(UnixStream::connect(&options.resource).await?);
        Ok(Self {
            ttl,
            locks,
            second,
            scribe: Arc::new(scribe),
            resource,
            stopped,
            random: Random::from_seed(u64::from(options.id) * 7919),
            turns: 0,
            known_until: Time(0),
            options,
        })
    }

    fn is_stopped(&self) -> bool {
        *self.stopped.borrow()
    }

    async fn work(mut self) -> Result<(), Failure> {
        while !self.is_stopped() {
            self.turns += 1;
            let of = LeaseRef {
                client: self.scribe.client,
                lock: self.options.lock.clone(),
                lease: LeaseId(self.turns),
            };
            match (self.ask(&of).await, self.options.manner) {
                (Some(lease), Manner::Detached) => self.hold_detached(&of, lease).await?,
                (Some(lease), _) => self.hold(&of, lease).await?,
                (None, _) => {}
            }
            let pause = self.random.millis(2..=40);
            tokio::time::sleep(pause).await;
        }
        self.locks.shutdown().await;
        Ok(())
    }

    async fn ask(&mut self, of: &LeaseRef) -> Option<Lease> {
        let (locks, ttl, lock) = (self.locks.clone(), self.ttl, &of.lock);
        let fair = self.options.fair;
        self.scribe.step(of, Step::Asked);
        let asking = async {
            let asking = locks.lock(lock).ttl(ttl).fair(fair);
            match self.options.manner {
                // All users of one lock are fair, or none.
                Manner::Try if fair => asking.timeout(Duration::ZERO).await,
                Manner::Try => locks.try_lock(lock).ttl(ttl).renew(false).await,
                _ => asking.await,
            }
        };
        let answer = tokio::select! {
            answer = asking => answer,
            // It fails only when the sender is gone, and that is a stop too.
            _ = self.stopped.wait_for(|stopped| *stopped) => {
                self.scribe.step(of, Step::Dropped);
                return None;
            }
        };
        match answer {
            Ok(lease) => {
                let (token, valid_until) = (lease.token().get(), end_of(&lease));
                self.known_until = valid_until;
                self.scribe.step(of, Step::Acquired { token, valid_until });
                Some(lease)
            }
            Err(error) => {
                let error = in_a_word(&error);
                self.scribe.step(of, Step::Failed { error });
                None
            }
        }
    }

    async fn hold(&mut self, of: &LeaseRef, lease: Lease) -> Result<(), Failure> {
        let (lease, child) = self.fork(lease)?;
        let lease = Arc::new(lease);
        let watch = tokio::spawn({
            let (lease, scribe, of) = (lease.clone(), self.scribe.clone(), of.clone());
            async move {
                let reason = lease.lost().await.as_str().to_owned();
                scribe.step(&of, Step::LossTold { reason });
            }
        });
        self.use_resource(of, &lease).await?;
        // It may have been renewed while the resource took its time, when nobody looked.
        self.note_validity(of, &lease);
        if lease.loss().is_none() {
            watch.abort();
        }
        // Whoever asks is told at once; whoever waits for it must be too. Whether it was aborted or
        // has ended: it has let go of the lease.
        let _ = watch.await;
        if let Some(child) = child
            && fork::waitpid(child)? != 0
        {
            return Err("a forked child used what it inherited".into());
        }
        self.scribe.step(of, Step::Releasing);
        let Some(lease) = Arc::into_inner(lease) else {
            return Err("somebody else has the lease".into());
        };
        let outcome = match lease.release().await {
            Ok(()) => Outcome::Released,
            Err(error) if error.is_lost() => Outcome::Lost,
            Err(_) => Outcome::Unknown,
        };
        self.scribe.step(of, Step::Released { outcome });
        Ok(())
    }

    /// Now and then, if it is to fork at all: the child uses the lease and drops it.
    fn fork(&mut self, lease: Lease) -> Result<(Lease, Option<i32>), Failure> {
        let file = match &self.options.forks {
            Some(file) if self.random.one_in(2) => file,
            _ => return Ok((lease, None)),
        };
        let mut file = File::options().create(true).append(true).open(file)?;
        match fork::fork()? {
            fork::Fork::Child => {
                let is_extended = at_once(lease.extend());
                drop(lease);
                let asking = self.locks.try_lock(&self.options.lock).ttl(self.ttl);
                let is_granted = at_once(asking.renew(false).into_future());
                // Only a refusal at once shows that nothing was sent.
                let is_refused = matches!((is_extended, is_granted), (Some(Err(_)), Some(Err(_))));
                std::process::exit(i32::from(!is_refused));
            }
            fork::Fork::Parent(child) => {
                file.write_all(b".")?;
                Ok((lease, Some(child)))
            }
        }
    }

    /// Extends it by a short TTL, which may be late, and by a long one; uses it for most of that.
    async fn hold_detached(&mut self, of: &LeaseRef, lease: Lease) -> Result<(), Failure> {
        let (token, mut valid_until) = (lease.token().get(), end_of(&lease));
        let Ok(detached) = lease.detach().await else {
            // It was over before it could be detached.
            self.told_at_its_end(of);
            return Ok(());
        };
        let read = self.put(&Question::Read { token }).await?;
        let (second, short) = (self.second.clone(), detached.clone());
        // Whatever comes of it: nothing is promised by the short one.
        drop(tokio::spawn(async move {
            second.extend_detached(&short, SHORT).await
        }));
        tokio::time::sleep(BEFORE_THE_LONG_ONE).await;
        let sent = now();
        let extended = self.locks.extend_detached(&detached, LONG).await;
        if let (Ok(left), true) = (extended, now() < valid_until) {
            // It counts from before it was sent, so that it is never later than it is.
            valid_until = valid_until.max(sent.after(left));
            self.scribe.step(of, Step::Extended { valid_until });
        }
        let most = match self.random.one_in(3) {
            true => Duration::ZERO,
            false => LONG,
        };
        let end = now().after(most + self.random.millis(5..=50));
        while now() < end && now().after(MARGIN) < valid_until {
            tokio::time::sleep(LOOK).await;
        }
        let is_valid = now() < valid_until;
        if !is_valid {
            self.told_at_its_end(of);
        }
        if let Answer::Set(items) = read {
            self.write_back(of, token, items).await?;
        }
        let is_valid = is_valid && now() < valid_until;
        self.scribe.step(of, Step::Releasing);
        let outcome = match self.locks.release_detached(&detached).await {
            Ok(()) => Outcome::Released,
            Err(error) if error.is_lost() && is_valid && now() < valid_until => {
                return Err(format!("{of} is lost while it is valid: {error}").into());
            }
            Err(error) if error.is_lost() => Outcome::Lost,
            Err(_) => Outcome::Unknown,
        };
        self.scribe.step(of, Step::Released { outcome });
        Ok(())
    }

    /// A detached lock has no timer but the process's own.
    fn told_at_its_end(&self, of: &LeaseRef) {
        let reason = "expired".to_owned();
        self.scribe.step(of, Step::LossTold { reason });
    }

    /// Reads the set, works, writes it back with one item more.
    async fn use_resource(&mut self, of: &LeaseRef, lease: &Lease) -> Result<(), Failure> {
        let token = lease.token().get();
        let Answer::Set(items) = self.put(&Question::Read { token }).await? else {
            return Ok(());
        };
        if !self.pass_time(of, lease).await {
            return Ok(());
        }
        self.write_back(of, token, items).await
    }

    async fn write_back(
        &mut self,
        of: &LeaseRef,
        token: u64,
        mut items: Vec<u64>,
    ) -> Result<(), Failure> {
        let item = u64::from(self.options.id) * 1_000_000 + self.turns;
        items.push(item);
        let write = Question::Write {
            of: of.clone(),
            token,
            item,
            items,
        };
        self.put(&write).await?;
        Ok(())
    }

    /// Works for a while; whether to go on.
    async fn pass_time(&mut self, of: &LeaseRef, lease: &Lease) -> bool {
        let careful = self.options.manner == Manner::Careful;
        let work = match self.options.manner {
            Manner::Careful | Manner::Careless if self.random.one_in(12) => {
                self.ttl + self.random.millis(1..=200)
            }
            _ => self.random.millis(2..=25),
        };
        let end = now().after(work);
        if self.options.manner == Manner::Try && self.random.one_in(3) {
            // A failure takes nothing away.
            let _ = lease.extend().await;
        }
        loop {
            self.note_validity(of, lease);
            if careful && !lease.is_valid() {
                return false;
            }
            if now() >= end {
                return true;
            }
            tokio::time::sleep(LOOK.min(work)).await;
        }
    }

    /// Writes down if the lease is valid for longer than was known.
    fn note_validity(&mut self, of: &LeaseRef, lease: &Lease) {
        let valid_until = end_of(lease);
        // A lease that is over ends now by its own word, whenever now is.
        if lease.is_valid() && valid_until > self.known_until.after(SAME_END) {
            self.known_until = valid_until;
            self.scribe.step(of, Step::Extended { valid_until });
        }
    }

    async fn put(&mut self, question: &Question) -> Result<Answer, Failure> {
        let mut line = serde_json::to_vec(question)?;
        line.push(b'\n');
        self.resource.write_all(&line).await?;
        let mut answer = String::new();
        self.resource.read_line(&mut answer).await?;
        Ok(serde_json::from_str(&answer)?)
    }
}

/// What is there at the first poll. A child must not run the runtime that it shares with its parent.
fn at_once<T>(future: impl Future<Output = T>) -> Option<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => Some(outcome),
        Poll::Pending => None,
    }
}

/// When the lease ends by its own word. Read in this order, it is never later than that.
fn end_of(lease: &Lease) -> Time {
    now().after(lease.remaining())
}

fn in_a_word(error: &Error) -> String {
    let word = match error.kind() {
        ErrorKind::Held | ErrorKind::Timeout => "held",
        ErrorKind::TooLate => "too_late",
        _ if error.is_no_quorum() => "no_quorum",
        _ => return error.to_string(),
    };
    word.to_owned()
}
