//! What the service logs: events of `tracing`, one line each, on stderr. Spans are for those who embed the
//! server; what it logs itself has the ids of the request in it.

use std::fmt::{self, Write as _};

use tracing::field::{Field, Visit};
use tracing::span;
use tracing::subscriber::{Interest, Subscriber};
use tracing::{Event, Level, Metadata};

use crate::teller;

/// Says everything from warnings upwards.
struct Log;

/// Logs from now on. Once for a process: a second time changes nothing.
pub(crate) fn begin() {
    let _ = tracing::subscriber::set_global_default(Log);
}

fn is_said(metadata: &Metadata<'_>) -> bool {
    metadata.is_event() && *metadata.level() <= Level::WARN
}

impl Subscriber for Log {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        match is_said(metadata) {
            true => Interest::always(),
            false => Interest::never(),
        }
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        is_said(metadata)
    }

    fn max_level_hint(&self) -> Option<tracing::level_filters::LevelFilter> {
        Some(tracing::level_filters::LevelFilter::WARN)
    }

    fn event(&self, event: &Event<'_>) {
        let metadata = event.metadata();
        let mut line = Line::default();
        event.record(&mut line);
        let level = metadata.level().as_str().to_ascii_lowercase();
        let now = humantime::format_rfc3339_millis(std::time::SystemTime::now());
        let (target, Line { message, fields }) = (metadata.target(), line);
        teller::say(format!("{now} {level} {target}: {message}{fields}\n"));
    }

    // No span is enabled.
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

/// One event as text: the message, then ` name=value` for each field, quoted as `Debug` does, so that no
/// value can begin a line of its own.
#[derive(Default)]
struct Line {
    message: String,
    fields: String,
}

impl Visit for Line {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a string does not fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => {
                let text = format!("{value:?}").replace(char::is_control, " ");
                write!(self.fields, " {name}={text}")
            }
        };
    }
}
