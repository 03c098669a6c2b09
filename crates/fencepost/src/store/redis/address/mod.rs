//! From a URL to a stream of bytes.
//!
//! `url`: what a URL says; `several`: what one with several hosts says; `stream`: connecting; `tls`: the same over TLS.

pub(super) mod several;
pub(super) mod stream;
#[cfg(feature = "tls")]
pub(super) mod tls;
pub(super) mod url;
