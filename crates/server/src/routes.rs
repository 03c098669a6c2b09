//! From the table of operations to what carries them out.

use axum::Router;
use axum::routing::{MethodRouter, get, post};

use crate::api;
use crate::events;
use crate::guard::guard;
use crate::operations::{ROUTES, Route};
use crate::service::Service;
use crate::trace::trace;
use crate::ui;

fn operation(route: &Route) -> MethodRouter<Service> {
    match route.path {
        "/v1/acquire" => post(api::acquire),
        "/v1/extend" => post(api::extend),
        "/v1/release" => post(api::release),
        "/v1/steal" => post(api::steal),
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

pub(crate) fn router(service: Service) -> Router {
    let mut router = Router::new();
    for route in &ROUTES {
        router = router.route(route.path, operation(route));
    }
    router
        .merge(ui::routes())
        .fallback(api::not_found)
        .method_not_allowed_fallback(api::method_not_allowed)
        .layer(axum::middleware::from_fn_with_state(service.clone(), guard))
        .layer(axum::middleware::from_fn(trace))
        .with_state(service)
}
