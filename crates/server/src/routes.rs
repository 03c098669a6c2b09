//! From the table of operations to what carries them out.

use axum::Router;
use axum::routing::{MethodRouter, get, post};

use crate::api;
use crate::events;
use crate::operations::{ROUTES, Route};
use crate::service::{SeesNodes, Service};
use crate::steal;
use crate::ui;

fn operation(route: &Route) -> MethodRouter<Service> {
    match route.path {
        "/v1/acquire" => post(api::acquire),
        "/v1/extend" => post(api::extend),
        "/v1/release" => post(api::release),
        "/v1/steal" => post(steal::steal),
        "/v1/locks" => get(api::list),
        "/v1/events" => get(events::events),
        "/v1/nodes" => get(events::nodes),
        "/v1/contention" => get(events::contention),
        "/v1/timeline" => get(events::timeline),
        "/livez" => get(api::livez),
        "/readyz" => get(api::readyz),
        "/metrics" => get(api::metrics),
        "/openapi.json" => get(api::openapi),
        // A route without an operation answers as if it were not there; a test goes through them.
        _ => get(api::not_found),
    }
}

/// What is offered at an address of its own to those who look after the service.
pub(crate) fn metrics_router(service: Service) -> Router {
    Router::new()
        .route("/metrics", get(api::metrics_elsewhere))
        .route("/livez", get(api::livez))
        .route(
            "/readyz",
            get(|service| api::readyz(service, SeesNodes(true))),
        )
        .fallback(api::not_found)
        .method_not_allowed_fallback(api::method_not_allowed)
        .with_state(service)
}

pub(crate) fn router(service: Service) -> Router {
    let mut router = Router::new();
    for route in &ROUTES {
        router = router.route(route.path, operation(route));
    }
    router
        .merge(ui::routes())
        .fallback(api::not_found)
        .method_not_allowed_fallback(api::method_not_allowed)
        .with_state(service)
}
