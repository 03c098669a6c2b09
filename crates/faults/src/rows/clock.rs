//! Wall clocks that jump and that run too fast or too slow.
//!
//! Redis lets keys expire by its wall clock. What follows:
//! - **Back**: a node keeps its locks longer. Nobody gets anything too early; a lock that its holder
//!   did not give back stays on that node for that much longer. Everything else is promised, for as
//!   long as a majority of the clocks stands still.
//! - **Ahead**: a node lets its locks go early, as if it had been flushed, and the same is promised as
//!   there: see `forget.rs`. A jump of more than a day lets the counter go too; then the order of
//!   tokens rests on the clients' clocks, as promised.
//! - **Rate**: within the drift that the client allows for (1 % of the TTL and 2 ms), on all nodes at
//!   once, everything is promised. Beyond it nothing is: `tests/not_promised.rs`.
//! - **The clients' clocks** are used for nothing but to propose tokens. They may say what they like:
//!   everything is promised.

use std::time::Duration;

use crate::clock::{BentClock, Jump};
use crate::cluster::CLIENTS;
use crate::row::{Needs, Promise, Row};
use crate::scene::Scene;

const HOUR: Duration = Duration::from_secs(3600);

const fn row(
    name: &'static str,
    what: &'static str,
    hurt: fn(&mut Scene) -> std::io::Result<usize>,
) -> Row {
    Row {
        needs: Needs::BentClocks,
        lay_out: |layout| layout.options.bent = true,
        ..Row::new(name, what, hurt)
    }
}

pub(super) const ROWS: &[Row] = &[
    Row {
        promise: Promise::AllButExclusion,
        ..row(
            "clock-ahead",
            "the wall clocks of a minority of the servers jump ahead, by a second up to two days",
            |scene| {
                let jumps = [Duration::from_secs(1), HOUR, 48 * HOUR];
                let jump = jumps[scene.random.place(jumps.len())];
                for node in scene.fixed_minority() {
                    if let Some(clock) = &mut scene.cluster.nodes[node].clock {
                        clock.jump(Jump::Ahead(jump))?;
                    }
                }
                scene.pass(50..=400);
                Ok(scene.cluster.minority())
            },
        )
    },
    row(
        "clock-back",
        "the wall clocks of a minority of the servers jump back, each time by up to 300 ms",
        |scene| {
            let jump = scene.random.millis(20..=300);
            for node in scene.fixed_minority() {
                if let Some(clock) = &mut scene.cluster.nodes[node].clock {
                    clock.jump(Jump::Back(jump))?;
                }
            }
            scene.clocks_set_back += jump;
            scene.pass(200..=600);
            Ok(scene.cluster.minority())
        },
    ),
    row(
        "clock-rate",
        "the wall clocks of all servers run up to 0.9 % too fast or too slow",
        |scene| {
            let many = scene.cluster.nodes.len();
            for node in 0..many {
                let thousandths = scene.random.below(19) as f64 - 9.0;
                if let Some(clock) = &mut scene.cluster.nodes[node].clock {
                    clock.run_at(1.0 + thousandths / 1000.0)?;
                }
            }
            scene.pass(100..=500);
            Ok(many)
        },
    ),
    Row {
        lay_out: |_| {},
        prepare: |scene| {
            for client in 0..CLIENTS {
                let path = scene
                    .cluster
                    .folder()
                    .join(format!("clock-of-client{client}"));
                scene.client_clocks.push(BentClock::new(&path)?);
            }
            Ok(())
        },
        ..row(
            "clock-clients",
            "the wall clocks of the clients jump by up to two days, ahead and back",
            |scene| {
                let many = scene.client_clocks.len();
                let client = scene.random.place(many);
                let minutes = scene.random.below(48 * 60);
                let by = Duration::from_secs(60 * minutes);
                let jump = match scene.random.one_in(2) {
                    true => Jump::Ahead(by),
                    false => Jump::Back(by),
                };
                scene.client_clocks[client].jump(jump)?;
                scene.pass(20..=200);
                Ok(1)
            },
        )
    },
];
