//! The one path to a lease: options are checked into a [`Spec`], and one of several names, or all of
//! them, are acquired by it.
//!
//! | file | what it is |
//! | --- | --- |
//! | this one | the spec, and one attempt |
//! | `any` | any of several names: the one waiting loop |
//! | `all` | all of several names, or none |
//! | `served` | the same by a lock service, which waits for us |
//! | `slots` | the names of the slots of a semaphore, latch or barrier, and which were seen free |
//! | `free`, `outlook` | what a look at several slots means, and the progress that a waiter is shown; pure |

pub(crate) mod all;
mod any;
mod free;
mod outlook;
mod served;
pub(crate) mod slots;

use std::sync::Arc;
use std::time::Duration;

use tracing::Instrument;

use crate::driver::claim::{Access, AcquireMode, Claim, Grant};
use crate::driver::held::Limits;
use crate::driver::identity::{OnBehalf, ValueForm};
use crate::driver::shared::Shared;
use crate::driver::waiters::RetryBudget;
use crate::error::Error;
use crate::events;
use crate::lease::Lease;
use crate::options::{Ask, LockOptions, Watcher};
pub(crate) use any::{AnyOf, Found};
use fencepost_core::AttemptValue;
use fencepost_core::lock::{Precedence, Repair};
use fencepost_core::name::LockName;
use fencepost_core::ticket::{Ticket, TicketMode};
use fencepost_core::ttl::Ttl;

/// What all attempts of one request have in common. The wait begins when it is made.
#[derive(Clone, Debug)]
pub(crate) struct Spec {
    pub(crate) ttl: Ttl,
    pub(crate) limits: Limits,
    pub(crate) fair: bool,
    pub(crate) access: Access,
    pub(crate) form: ValueForm,
    pub(crate) budget: RetryBudget,
    pub(crate) watcher: Option<Watcher>,
    pub(crate) on_behalf: Option<OnBehalf>,
}

/// Checks the options of a request for an exclusive lock under the client's own label.
pub(crate) fn check<T>(ask: &Ask<T>) -> Result<Spec, Error> {
    let mut spec = Spec::new(&ask.shared, ask.options)?;
    spec.watcher.clone_from(&ask.watcher);
    Ok(spec.on_behalf(ask.on_behalf.clone()))
}

impl Spec {
    /// What follows from the options, where the client says what they do not.
    pub(crate) fn new(shared: &Shared, options: LockOptions) -> Result<Self, Error> {
        let ttl = match options.ttl {
            Some(ttl) => shared.checked_ttl(ttl)?,
            None => shared.default_ttl,
        };
        Ok(Self {
            ttl,
            limits: Limits {
                renew: !options.no_renewal,
                max_hold: options.max_hold.or(shared.max_hold),
                max_renewals: options.max_renewals.or(shared.max_renewals),
            },
            fair: options.fair,
            access: Access::Exclusive,
            form: shared.value_form(),
            budget: RetryBudget::new(options.timeout, ttl),
            watcher: None,
            on_behalf: None,
        })
    }

    /// For a client of the lock service: values with its lease id, and a ticket that derives from it.
    pub(crate) fn on_behalf(mut self, on_behalf: Option<OnBehalf>) -> Self {
        if let Some(OnBehalf { of, owner, .. }) = &on_behalf {
            self.form = ValueForm::Leased(*of, owner.clone());
        }
        self.on_behalf = on_behalf;
        self
    }

    /// To read or to write: the queue of a read-write lock is always fair.
    pub(crate) fn to(mut self, access: Access) -> Self {
        self.access = access;
        self.fair = true;
        self
    }

    /// With values of another form.
    pub(crate) fn form(mut self, form: ValueForm) -> Self {
        self.form = form;
        self
    }

    /// With other limits to renewal.
    pub(crate) fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// How it stands to those in the queue while it is not in it.
    fn first_turn(&self) -> Precedence {
        match self.fair {
            true => Precedence::PassNobody,
            false => Precedence::MayPass,
        }
    }

    /// How it stands to others once it is in the queue.
    fn ticket_mode(&self) -> TicketMode {
        match self.access {
            Access::Exclusive => TicketMode::of(self.fair),
            Access::Shared => TicketMode::Reader,
        }
    }

    fn claim(
        &self,
        shared: &Shared,
        name: LockName,
        ticket: Option<Ticket>,
    ) -> Result<Claim, Error> {
        Ok(Claim {
            name,
            value: self
                .form
                .draw(&*shared.coordinator.randomness, shared.session)?,
            ttl: self.ttl,
            access: self.access,
            ticket,
            repair: Repair::Always,
            outlives: false,
        })
    }
}

/// The lock of that name, waited for.
pub(crate) async fn one(shared: &Arc<Shared>, name: &LockName, spec: Spec) -> Result<Lease, Error> {
    let any = AnyOf {
        shared,
        names: std::slice::from_ref(name),
        slots: None,
        spec,
    };
    any.acquire().await.map(|(_, lease)| lease)
}

/// One attempt.
pub(crate) async fn attempt(
    shared: &Arc<Shared>,
    spec: &Spec,
    name: LockName,
    turn: Precedence,
    ticket: Option<Ticket>,
) -> Result<Lease, Error> {
    let claim = spec.claim(shared, name, ticket)?;
    let goes_on = !spec.budget.is_over();
    let grant = take(shared, &claim, &AcquireMode::Free { turn, goes_on }).await?;
    Ok(Lease::new(shared.clone(), grant, spec.limits))
}

/// Takes the lock from exactly these values, or if it is free.
pub(crate) async fn take_over(
    shared: &Arc<Shared>,
    name: LockName,
    options: LockOptions,
    on_behalf: OnBehalf,
    from: Vec<AttemptValue>,
) -> Result<Lease, Error> {
    let spec = Spec::new(shared, options)?.on_behalf(Some(on_behalf));
    let claim = spec.claim(shared, name, None)?;
    let grant = take(shared, &claim, &AcquireMode::Over(from)).await?;
    Ok(Lease::new(shared.clone(), grant, spec.limits))
}

/// Takes the lock from its holder, without renewing it; and tells who that was.
pub(crate) async fn steal(
    shared: &Arc<Shared>,
    name: LockName,
    ttl: Duration,
    on_behalf: Option<OnBehalf>,
) -> Result<(Lease, Option<AttemptValue>), Error> {
    let spec = Spec::new(shared, LockOptions::new().ttl(ttl))?.on_behalf(on_behalf);
    let claim = spec.claim(shared, name, None)?;
    let mut grant = take(shared, &claim, &AcquireMode::Stolen).await?;
    let from = grant.evicted.take();
    let lease = Lease::new(shared.clone(), grant, Limits::default());
    Ok((lease, from))
}

async fn take(shared: &Shared, claim: &Claim, mode: &AcquireMode) -> Result<Grant, Error> {
    let coordinator = &shared.coordinator;
    let span = events::acquiring(&claim.name);
    let start = coordinator.clock.now();
    let outcome = coordinator
        .acquire(claim, mode)
        .instrument(span.clone())
        .await;
    let _in_span = span.enter();
    match &outcome {
        Ok(grant) => {
            let took = coordinator.clock.now().since(start);
            events::acquired(&span, &claim.name, grant.token, took);
        }
        Err(error) => events::contended(&claim.name, error),
    }
    outcome
}
