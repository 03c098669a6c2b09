//! The keys and arguments of each script.

use std::time::Duration;

use crate::store::redis::encoding::keys::Keys;
use crate::store::redis::protocol::command::Cmd;
use fencepost_core::lock::{Command, MAX_SKEW, Precedence, Repair, TicketDisposition};
use fencepost_core::ticket::{ClientId, Standing};
use fencepost_core::token::FencingToken;
use fencepost_core::ttl::Ttl;
use fencepost_core::value::AttemptValue;

/// The command that runs a script: its keys, then its arguments.
pub(super) fn write(verb: &str, script: &str, command: &Command, keys: &Keys) -> Cmd {
    let mut cmd = Cmd::with_capacity(verb, script.len() + 512);
    cmd.arg(script);
    match command {
        Command::Acquire {
            value,
            ttl,
            proposed,
            turn,
        } => {
            let lease = keys.lease_tombstone(value);
            cmd.arg(5 + lease.iter().len())
                .arg(&keys.lock)
                .arg(keys.register())
                .arg(keys.tombstone(value))
                .arg(keys.queue())
                .arg(keys.leases())
                .arg(lease);
            acquire_args(&mut cmd, value, *ttl, *proposed);
            match turn {
                Precedence::MayPass => {}
                Precedence::PassNobody => {
                    cmd.arg("").arg("f");
                }
                Precedence::Ticket(id) => {
                    let mode = if id.is_fair() { "f" } else { "d" };
                    cmd.arg(id.as_str()).arg(mode);
                    if keys.is_slot() {
                        cmd.arg("stays");
                    }
                }
            }
        }
        Command::Share {
            value,
            ttl,
            proposed,
            turn,
        } => {
            let lease = keys.lease_tombstone(value);
            cmd.arg(6 + lease.iter().len());
            six_keys(&mut cmd, keys, value).arg(lease);
            acquire_args(&mut cmd, value, *ttl, *proposed);
            if let Precedence::Ticket(id) = turn {
                cmd.arg(id.as_str());
            }
        }
        Command::Steal {
            value,
            ttl,
            proposed,
            from,
        } => {
            let lease = keys.lease_tombstone(value);
            cmd.arg(5 + lease.iter().len())
                .arg(&keys.lock)
                .arg(keys.register())
                .arg(keys.tombstone(value))
                .arg(keys.stolen())
                .arg(keys.readers())
                .arg(lease);
            acquire_args(&mut cmd, value, *ttl, *proposed);
            for value in from {
                cmd.arg(value.as_str());
            }
        }
        Command::Raise { value, to } => {
            cmd.arg(3)
                .arg(&keys.lock)
                .arg(keys.register())
                .arg(keys.readers())
                .arg(value.as_str())
                .arg(to.get());
        }
        Command::Extend {
            value,
            ttl,
            token,
            entries,
            repair,
        } => {
            let lease = keys.lease_tombstone(value);
            cmd.arg(4 + lease.iter().len())
                .arg(&keys.lock)
                .arg(keys.register())
                .arg(keys.tombstone(value))
                .arg(keys.stolen())
                .arg(lease);
            extend_args(&mut cmd, value, *ttl, *token);
            cmd.arg(match repair {
                Repair::Always => "always",
                Repair::UnlessOvertaken => "compares",
                Repair::Never => "never",
            });
            if value.is_reentrant() {
                cmd.arg(entries.get());
            }
        }
        Command::ExtendShared { value, ttl, token } => {
            let lease = keys.lease_tombstone(value);
            cmd.arg(7 + lease.iter().len());
            let cmd = six_keys(&mut cmd, keys, value);
            cmd.arg(keys.stolen()).arg(lease);
            extend_args(cmd, value, *ttl, *token);
        }
        Command::ReleaseLease { lease, tombstone } => {
            let mark = AttemptValue::of_lease(*lease);
            cmd.arg(5)
                .arg(&keys.lock)
                .arg(keys.queue())
                .arg(keys.leases())
                .arg(keys.tombstone(&mark))
                .arg(keys.readers())
                .arg(mark.unique_part())
                .arg(millis_up(*tombstone));
        }
        Command::Release {
            value,
            tombstone,
            ticket,
            follower,
            is_lease,
        } => {
            cmd.arg(6)
                .arg(&keys.lock)
                .arg(keys.queue())
                .arg(keys.leases())
                .arg(keys.tombstone(value))
                .arg(keys.readers())
                .arg(keys.stolen())
                .arg(value.as_str())
                .arg(tombstone.map_or(0, millis_up))
                .arg(if *is_lease { "0" } else { "1" })
                .arg(follower.as_ref().map_or("", ClientId::as_str));
            match ticket {
                TicketDisposition::Stays => cmd.arg("stays"),
                TicketDisposition::Leaves(id) => cmd.arg("leaves").arg(id.as_str()),
                TicketDisposition::Returns { id, number, lease } => cmd
                    .arg("returns")
                    .arg(id.as_str())
                    .arg(number.get())
                    .arg(millis_up(*lease)),
            };
        }
        Command::Enqueue { tickets, lease } => {
            cmd.arg(4)
                .arg(&keys.lock)
                .arg(keys.queue())
                .arg(keys.leases())
                .arg(keys.register())
                .arg(millis_up(*lease))
                .arg(MAX_SKEW.as_micros() as u64);
            for ticket in tickets {
                let standing = match ticket.number {
                    Standing::Proposed(_) => "proposed",
                    Standing::Agreed(_) => "agreed",
                };
                cmd.arg(ticket.id.as_str())
                    .arg(ticket.number.number().get())
                    .arg(standing);
            }
        }
        Command::Leave { tickets } => {
            cmd.arg(3)
                .arg(&keys.lock)
                .arg(keys.queue())
                .arg(keys.leases());
            for id in tickets {
                cmd.arg(id.as_str());
            }
        }
        Command::Inspect => {
            cmd.arg(4)
                .arg(&keys.lock)
                .arg(keys.register())
                .arg(keys.leases())
                .arg(keys.readers());
        }
    }
    cmd
}

fn acquire_args(cmd: &mut Cmd, value: &AttemptValue, ttl: Ttl, proposed: FencingToken) {
    cmd.arg(value.as_str())
        .arg(ttl.as_millis())
        .arg(proposed.get())
        .arg(MAX_SKEW.as_micros() as u64);
}

fn extend_args(cmd: &mut Cmd, value: &AttemptValue, ttl: Ttl, token: FencingToken) {
    cmd.arg(value.as_str())
        .arg(ttl.as_millis())
        .arg(token.get());
}

fn six_keys<'c>(cmd: &'c mut Cmd, keys: &Keys, value: &AttemptValue) -> &'c mut Cmd {
    cmd.arg(&keys.lock)
        .arg(keys.register())
        .arg(keys.tombstone(value))
        .arg(keys.queue())
        .arg(keys.leases())
        .arg(keys.readers())
}

/// Rounded up, and at least a millisecond: Redis accepts no shorter TTL.
fn millis_up(time: Duration) -> u64 {
    let millis = time.as_nanos().div_ceil(1_000_000).max(1);
    // Redis adds it to its clock in 63 bits; a year is as good as forever.
    const YEAR: u128 = 365 * 24 * 60 * 60 * 1000;
    millis.min(YEAR) as u64
}
