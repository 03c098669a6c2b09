//! TLS by rustls: whom to trust, and who we are.
//!
//! A certificate must never go unchecked; there is no switch for that.

use std::io;
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use tokio_rustls::{TlsConnector, rustls};

use super::options::TlsOptions;
use crate::error::Error;

/// How to talk TLS to one host.
pub(super) struct Tls {
    connector: TlsConnector,
    host: ServerName<'static>,
}

impl Tls {
    /// # Errors
    /// [`Error::InvalidOption`] for certificates that cannot be used.
    pub(super) fn new(host: &str, options: &TlsOptions) -> Result<Self, Error> {
        let invalid = |why: String| Error::InvalidOption { option: "tls", why };
        let name = ServerName::try_from(host.to_owned()).map_err(|_| {
            invalid(format!(
                "{host:?} is not a host that a certificate can name"
            ))
        })?;
        let config = config(options).map_err(invalid)?;
        Ok(Self {
            connector: TlsConnector::from(Arc::new(config)),
            host: name,
        })
    }

    /// Shakes hands over a connection.
    pub(super) async fn over(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        self.connector.connect(self.host.clone(), stream).await
    }
}

fn config(options: &TlsOptions) -> Result<ClientConfig, String> {
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots(options)?);
    let Some((chain, key)) = &options.client_pem else {
        return Ok(builder.with_no_client_auth());
    };
    let chain = certificates(chain, "the client's certificate")?;
    let key = PrivateKeyDer::from_pem_slice(key)
        .map_err(|error| format!("the client's private key is not PEM: {error}"))?;
    builder
        .with_client_auth_cert(chain, key)
        .map_err(|error| format!("the client's certificate and key: {error}"))
}

fn roots(options: &TlsOptions) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    match &options.ca_pem {
        Some(pem) => {
            for certificate in certificates(pem, "the authority's certificate")? {
                roots.add(certificate).map_err(|error: rustls::Error| {
                    format!("the authority's certificate: {error}")
                })?;
            }
        }
        None => {
            // Some of a system's certificates may be broken; the others still serve.
            let found = rustls_native_certs::load_native_certs();
            let (taken, _) = roots.add_parsable_certificates(found.certs);
            if taken == 0 {
                return Err("this system has no trusted certificates; give them in ca_pem".into());
            }
        }
    }
    Ok(roots)
}

fn certificates(pem: &[u8], what: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match all {
        Ok(all) if all.is_empty() => Err(format!("{what} is not PEM: it has no CERTIFICATE")),
        Ok(all) => Ok(all),
        Err(error) => Err(format!("{what} is not PEM: {error}")),
    }
}
