//! The kinds of faults, and how many of each were injected.

use std::collections::BTreeMap;

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// A message takes much longer than usual.
    Delay,
    /// A command never reaches its node.
    CommandLost,
    /// A node's answer never reaches its client.
    AnswerLost,
    /// A node's notice that it is somebody's turn never reaches its client.
    NoticeLost,
    /// A command reaches its node twice, the second time out of order.
    Duplicate,
    /// A connection is replaced, and what is on its way on the old one may arrive behind what is
    /// sent on the new one.
    Reset,
    /// Some clients and nodes do not hear each other.
    Partition,
    /// One side does not hear the other.
    OneWay,
    /// A node's process dies and comes back with its data.
    CrashKeepingData,
    /// A node's process dies and comes back empty, or with an older copy of its data.
    CrashLosingData,
    /// A node is flushed, with its marker, while clients are connected.
    Flush,
    /// A node becomes a replica of an older copy of its data and a master again, without a restart.
    RoleChange,
    /// The list of nodes grows, while some clients have the new list already and some still the old one.
    ListChange,
    /// A node stands still; what it was sent is carried out late.
    NodePause,
    /// A client stands still: its timers fire late, its clock goes on.
    ClientPause,
    /// A client is gone for good.
    ClientDeath,
    /// A client's wall clock jumps.
    ClientWallJump,
    /// A node's wall clock jumps.
    NodeWallJump,
    /// A client's clocks run too fast or too slow, within the drift that is allowed for.
    ClientRate,
    /// A node's clocks do.
    NodeRate,
    /// A future of the library is dropped half-way.
    Cancel,
}

impl Fault {
    /// All kinds.
    pub const ALL: [Self; 21] = [
        Self::Delay,
        Self::CommandLost,
        Self::AnswerLost,
        Self::NoticeLost,
        Self::Duplicate,
        Self::Reset,
        Self::Partition,
        Self::OneWay,
        Self::CrashKeepingData,
        Self::CrashLosingData,
        Self::Flush,
        Self::RoleChange,
        Self::ListChange,
        Self::NodePause,
        Self::ClientPause,
        Self::ClientDeath,
        Self::ClientWallJump,
        Self::NodeWallJump,
        Self::ClientRate,
        Self::NodeRate,
        Self::Cancel,
    ];

    /// Those by which nodes lose data. A run has them or not, so that the others judge tokens and losses
    /// strictly.
    pub const LOSING_DATA: [Self; 3] = [Self::CrashLosingData, Self::Flush, Self::RoleChange];

    /// Whether nodes lose data by it.
    #[must_use]
    pub fn loses_data(self) -> bool {
        Self::LOSING_DATA.contains(&self)
    }

    /// Its name, for people.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Delay => "message delayed",
            Self::CommandLost => "command lost",
            Self::AnswerLost => "answer lost",
            Self::NoticeLost => "wake-up notice lost",
            Self::Duplicate => "command duplicated",
            Self::Reset => "connection replaced",
            Self::Partition => "partition, both ways",
            Self::OneWay => "partition, one way",
            Self::CrashKeepingData => "node crashed, data kept",
            Self::CrashLosingData => "node crashed, data lost",
            Self::Flush => "node flushed",
            Self::RoleChange => "node's data replaced by a change of role",
            Self::ListChange => "list of nodes replaced",
            Self::NodePause => "node paused",
            Self::ClientPause => "client paused",
            Self::ClientDeath => "client died",
            Self::ClientWallJump => "client's wall clock jumped",
            Self::NodeWallJump => "node's wall clock jumped",
            Self::ClientRate => "client's clock off in rate",
            Self::NodeRate => "node's clock off in rate",
            Self::Cancel => "future dropped half-way",
        }
    }
}

/// How often each kind of fault was injected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FaultCounts(BTreeMap<Fault, u64>);

impl FaultCounts {
    pub(crate) fn note(&mut self, fault: Fault) {
        *self.0.entry(fault).or_default() += 1;
    }

    /// Adds those of another run.
    pub fn add(&mut self, other: &Self) {
        for (fault, count) in &other.0 {
            *self.0.entry(*fault).or_default() += count;
        }
    }

    /// How often that kind was injected.
    #[must_use]
    pub fn of(&self, fault: Fault) -> u64 {
        self.0.get(&fault).copied().unwrap_or(0)
    }
}
