//! The lock service: fencepost over HTTP, for every language.
//!
//! Replicas are stateless. A lease through the service is a detached lock of the library: any replica
//! over the same store extends or releases it, and a restart of a replica frees nothing. Nobody renews
//! without a message from the client.
//!
//! | file | what it does |
//! | --- | --- |
//! | `serve` | listens, speaks TLS, drains |
//! | `operations` | the table of paths: `routes`, `openapi` and `openapi_schemas` follow it |
//! | `service` | what every request needs, and who asks |
//! | `api`, `steal` | the operations as requests come in: acquire, extend, release, locks; steal |
//! | `acquire`, `extend`, `release` | the same with the library: attempts, slots, tombstones |
//! | `held` | what the nodes hold under a lease id |
//! | `slots` | the slots of a name, which clients use by that name |
//! | `auth` | bearer tokens and client certificates: who may do what |
//! | `looks` | what was seen of a lock a moment ago, for all that wait for it |
//! | `attempts` | the numbered attempts under way here, one of a lease at a time |
//! | `unread` | releases what was granted if the answer could not be sent |
//! | `pace` | how long a connection may take until its next request is there |
//! | `leases` | which locks are held, as far as this replica knows |
//! | `limits` | how much of everything one principal may have |
//! | `body`, `answer`, `problem` | requests in; answers and RFC 9457 problems out |
//! | `shown` | a lock as those see it who ask about it |
//! | `watcher` | looks at all locks, once for all streams of a replica |
//! | `events` | server-sent events and polls; nodes, contention and timeline |
//! | `texts` | what a look says, written once for all streams that see the same |
//! | `view`, `tracker`, `waits_for`, `contention` | what a look shows, and what happened between two; pure |
//! | `timeline` | what may have gone wrong, kept for days |
//! | `peers`, `pem` | the other replicas, asked for their timelines; certificates in files |
//! | `ui`, `guard` | the dashboard; what a foreign page may not send |
//! | `fuzz` | what the fuzz target calls |
//! | `trace`, `traceparent` | the id and the span of a request; the trace that its client began |
//! | `spans` | sends spans to a collector, by OTLP over HTTP |
//! | `metrics` | counters and histograms as Prometheus text |

#![forbid(unsafe_code)]

mod acquire;
mod answer;
mod api;
mod attempts;
mod auth;
mod body;
mod contention;
mod events;
mod extend;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
mod guard;
mod held;
mod leases;
mod limits;
mod looks;
mod metrics;
mod openapi;
mod openapi_schemas;
mod operations;
mod pace;
mod peers;
mod pem;
mod problem;
mod release;
mod routes;
mod serve;
mod service;
mod shown;
mod slots;
mod spans;
mod steal;
mod texts;
mod timeline;
mod trace;
mod traceparent;
mod tracker;
mod ui;
mod unread;
mod view;
pub mod waits_for;
mod watcher;

pub use auth::{AuthError, Tokens, hash_token};
pub use limits::{LimitError, Limits};
pub use peers::{Peers, PeersError};
pub use serve::{Options, Tls, TlsError, serve};
pub use service::Mode;
pub use spans::{Otlp, OtlpError};
pub use view::{contended, warnings};
pub use watcher::Doctor;
