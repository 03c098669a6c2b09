//! Random commands for one lock: values, tokens and tickets so few that they meet.

use std::collections::HashSet;
use std::num::NonZeroU32;
use std::time::Duration;

use fencepost::{AttemptValue, FencingToken, Owner};
use fencepost_core::LeaseId;
use fencepost_core::Ttl;
use fencepost_core::lock::{Command, Holder, Precedence, Repair, Snapshot, TicketDisposition};
use fencepost_core::ticket::{ClientId, Standing, Ticket, TicketId, TicketMode, TicketNumber};
use proptest::prelude::*;

const MAX: u64 = FencingToken::MAX.get();

#[derive(Clone, Debug)]
pub(crate) enum Step {
    Do(Command),
    /// The same, by whoever holds the lock then: chance alone seldom names it.
    DoAsHolder(Command),
    /// Time passes.
    Advance(Duration),
}

/// How the nodes store the holder: all values of one lock are of the same kind. Nobody reads a
/// reentrant lock.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Layout {
    Plain,
    Reentrant,
}

pub(crate) fn layout() -> impl Strategy<Value = Layout> {
    prop_oneof![Just(Layout::Plain), Just(Layout::Reentrant)]
}

fn value(layout: Layout) -> impl Strategy<Value = AttemptValue> {
    // What stands for all readers is nobody's value; somebody may send it all the same.
    let mark = Just(AttemptValue::shared());
    let one = (1..=5_u8).prop_map(move |n| {
        AttemptValue::reported(match layout {
            // Two of a lease that a client chose, one of an id that the service made.
            Layout::Plain if n == 4 => format!("{n:032x}:~{:032x}.0~owner-{n}", 18),
            Layout::Plain if n > 2 => format!("{n:032x}:~{:032x}.{n}.900~owner-{n}", 17),
            Layout::Plain => format!("{n:032x}:owner-{n}"),
            Layout::Reentrant => format!("00000000-0000-8000-8000-{n:012x}:{n}"),
        })
    });
    let marks = if layout == Layout::Plain { 1 } else { 0 };
    prop_oneof![24 => one, marks => mark]
}

fn lease() -> impl Strategy<Value = LeaseId> {
    (17..=19_u128).prop_map(LeaseId::new)
}

/// Minutes, so that the seconds that a case really takes do not matter.
fn ttl() -> impl Strategy<Value = Ttl> {
    (1..=4_u64).prop_map(|n| Ttl::new(Duration::from_secs(n * 600)).unwrap())
}

/// Small numbers that meet, the present, the far future that is clamped, and the last ones.
fn proposal() -> impl Strategy<Value = FencingToken> {
    prop_oneof![
        6 => (0..8_u64).prop_map(|n| FencingToken::new(n).unwrap()),
        2 => Just(FencingToken::new(1_700_000_000_123_457).unwrap()),
        2 => (MAX - 2..=MAX).prop_map(|n| FencingToken::new(n).unwrap()),
    ]
}

/// What a holder may send: also the last numbers, which are not clamped.
fn token() -> impl Strategy<Value = FencingToken> {
    prop_oneof![
        8 => (0..8_u64).prop_map(|n| FencingToken::new(n).unwrap()),
        2 => Just(FencingToken::new(1_700_000_000_123_459).unwrap()),
        1 => (MAX - 2..=MAX).prop_map(|n| FencingToken::new(n).unwrap()),
    ]
}

/// A few waiters of two clients, of all modes.
fn client_id() -> impl Strategy<Value = ClientId> {
    (0..2_u128).prop_map(ClientId::of)
}

fn ticket_id() -> impl Strategy<Value = TicketId> {
    (0..4_u64, 0..4_u8).prop_map(|(n, mode)| {
        let owner = Owner::new(format!("waiter-{n}")).unwrap();
        let client = ClientId::of(u128::from(n % 2));
        match mode {
            0 | 1 => TicketId::new(&client, n, mode == 1, &owner),
            _ => TicketId::of_mode(&client, n, TicketMode::Reader, &owner),
        }
    })
}

fn ticket_number() -> impl Strategy<Value = TicketNumber> {
    proposal().prop_map(|token| TicketNumber::saturating(token.get()))
}

fn ticket() -> impl Strategy<Value = Ticket> {
    (ticket_id(), ticket_number(), any::<bool>()).prop_map(|(id, number, agreed)| Ticket {
        id,
        number: match agreed {
            true => Standing::Agreed(number),
            false => Standing::Proposed(number),
        },
    })
}

/// Nobody shows a ticket twice at once.
fn tickets() -> impl Strategy<Value = Vec<Ticket>> {
    prop::collection::vec(ticket(), 1..4).prop_map(|mut tickets| {
        let mut seen = HashSet::new();
        tickets.retain(|ticket| seen.insert(ticket.id.clone()));
        tickets
    })
}

fn minutes() -> impl Strategy<Value = Duration> {
    (1..=4_u64).prop_map(|n| Duration::from_secs(n * 600))
}

fn turn() -> impl Strategy<Value = Precedence> {
    prop_oneof![
        2 => Just(Precedence::MayPass),
        1 => Just(Precedence::PassNobody),
        3 => ticket_id().prop_map(Precedence::Ticket),
    ]
}

fn fate() -> impl Strategy<Value = TicketDisposition> {
    prop_oneof![
        2 => Just(TicketDisposition::Stays),
        1 => ticket_id().prop_map(TicketDisposition::Leaves),
        1 => (ticket_id(), ticket_number(), minutes())
            .prop_map(|(id, number, lease)| TicketDisposition::Returns { id, number, lease }),
    ]
}

pub(crate) fn step(layout: Layout) -> impl Strategy<Value = Step> {
    let value = || value(layout);
    let tombstone = prop::option::of(minutes());
    let command = prop_oneof![
        5 => (value(), ttl(), proposal(), turn())
            .prop_map(|(value, ttl, proposed, turn)| Command::Acquire { value, ttl, proposed, turn }),
        5 => (value(), ttl(), proposal(), turn()).prop_map(move |(value, ttl, proposed, turn)| {
            match layout {
                Layout::Plain => Command::Share { value, ttl, proposed, turn },
                Layout::Reentrant => Command::Acquire { value, ttl, proposed, turn },
            }
        }),
        3 => (value(), ttl(), token()).prop_map(move |(value, ttl, token)| match layout {
            Layout::Plain => Command::ExtendShared { value, ttl, token },
            Layout::Reentrant => Command::Raise { value, to: token },
        }),
        2 => (value(), token()).prop_map(|(value, to)| Command::Raise { value, to }),
        3 => (value(), ttl(), token(), 1..100_u32, 0..5).prop_map(
            |(value, ttl, token, entries, repair)| {
                let entries = NonZeroU32::new(entries).unwrap();
                let repair = match repair {
                    0 => Repair::Never,
                    1 | 2 => Repair::UnlessOvertaken,
                    _ => Repair::Always,
                };
                Command::Extend { value, ttl, token, entries, repair }
            },
        ),
        4 => (value(), tombstone, fate(), prop::option::of(client_id()), any::<bool>()).prop_map(
            |(value, tombstone, ticket, follower, is_lease)| {
                Command::Release { value, tombstone, ticket, follower, is_lease }
            },
        ),
        4 => (tickets(), minutes())
            .prop_map(|(tickets, lease)| Command::Enqueue { tickets, lease }),
        1 => prop::collection::vec(ticket_id(), 1..3).prop_map(|tickets| Command::Leave { tickets }),
        1 => Just(Command::Inspect),
        2 => (value(), ttl(), proposal(), prop::collection::vec(value(), 0..3)).prop_map(
            |(value, ttl, proposed, from)| Command::Steal { value, ttl, proposed, from },
        ),
        2 => (lease(), minutes())
            .prop_map(|(lease, tombstone)| Command::ReleaseLease { lease, tombstone }),
    ];
    let advance = prop_oneof![
        4 => (1..=5_u64).prop_map(|n| Duration::from_secs(n * 600 - 300)),
        1 => Just(Duration::from_secs(25 * 60 * 60)),
    ];
    let command = (command, any::<bool>()).prop_map(|(command, as_holder)| match as_holder {
        true => Step::DoAsHolder(command),
        false => Step::Do(command),
    });
    prop_oneof![6 => command, 1 => advance.prop_map(Step::Advance)]
}

/// The command as whoever holds the lock would send it, where a holder would.
pub(crate) fn by_holder(mut command: Command, seen: &Snapshot) -> Command {
    // Where many read, the holder stands for all of them.
    let holder = seen.readers.iter().chain(&seen.holder).next();
    let Some(Holder { value: holder, .. }) = holder else {
        return command;
    };
    match &mut command {
        Command::Release { value, .. } | Command::Raise { value, .. } => *value = holder.clone(),
        Command::Extend { value, token, .. } | Command::ExtendShared { value, token, .. } => {
            *value = holder.clone();
            // Nearly always it is the one that the node has.
            *token = seen.register;
        }
        _ => {}
    }
    command
}
