//! TLS by rustls: trusted CAs and the client certificate.
//!
//! A certificate must never go unchecked; there is no option for that.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::client::ResolvesClientCert;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::{CertificateError, ClientConfig, RootCertStore, SignatureScheme};
use tokio_rustls::{TlsConnector, rustls};

use crate::error::{Cause, Error};
use crate::store::redis::options::TlsOptions;

/// The TLS configuration for one host.
pub(crate) struct Tls {
    connector: TlsConnector,
    host: ServerName<'static>,
    identity: Arc<Identity>,
}

impl Tls {
    /// # Errors
    /// [`ErrorKind::InvalidOption`](crate::ErrorKind::InvalidOption) for unusable certificates.
    pub(crate) fn new(host: &str, options: &TlsOptions) -> Result<Self, Error> {
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_| invalid(format!("{host:?} is not a valid TLS server name")))?;
        let identity = Identity::new(options).map_err(invalid)?;
        let identity = Arc::new(identity);
        let config = config(options, identity.clone()).map_err(invalid)?;
        Ok(Self {
            connector: TlsConnector::from(Arc::new(config)),
            host: name,
            identity,
        })
    }

    /// Performs the handshake over a connection.
    pub(crate) async fn over(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let shaking = self.connector.connect(self.host.clone(), stream);
        shaking.await.map_err(explained)
    }

    /// Why a server may have closed the connection after the handshake: in TLS 1.3 a client learns
    /// only then that its certificate is missing or rejected.
    pub(crate) fn why_closed(&self) -> Option<&'static str> {
        let asked = self.identity.is_asked_for.load(Ordering::Relaxed);
        asked.then_some(match self.identity.key {
            None => {
                "the server requires a client certificate; set it with its key: tls_client, or \
                 --tls-cert and --tls-key"
            }
            Some(_) => {
                "the server may not trust the client certificate; check its tls-ca-cert-file"
            }
        })
    }
}

/// The client certificate, and whether a server has requested it.
#[derive(Debug)]
struct Identity {
    key: Option<Arc<CertifiedKey>>,
    is_asked_for: AtomicBool,
}

impl Identity {
    fn new(options: &TlsOptions) -> Result<Self, String> {
        let key = options.client_pem.as_ref().map(certified).transpose()?;
        Ok(Self {
            key: key.map(Arc::new),
            is_asked_for: AtomicBool::new(false),
        })
    }
}

impl ResolvesClientCert for Identity {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.is_asked_for.store(true, Ordering::Relaxed);
        self.key.clone()
    }

    fn has_certs(&self) -> bool {
        self.key.is_some()
    }
}

impl TlsOptions {
    /// Checks these certificates before a server is contacted.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidOption`](crate::ErrorKind::InvalidOption) if they are not PEM, or the
    /// key does not match the certificate.
    pub fn check(&self) -> Result<(), Error> {
        let authorities = self.ca_pem.as_deref().map(trusted).transpose();
        authorities.map_err(invalid)?;
        Identity::new(self).map(drop).map_err(invalid)
    }
}

fn invalid(why: String) -> Error {
    Error::from(Cause::InvalidOption { option: "tls", why })
}

/// A hint for a failed handshake, where rustls only names the fault.
fn explained(error: io::Error) -> io::Error {
    let cause = error.get_ref().and_then(|inner| inner.downcast_ref());
    let hint = match cause {
        Some(rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer)) => {
            "set the CA certificate that signed it: tls_ca, or --tls-ca"
        }
        // The default of `openssl req -x509`.
        Some(rustls::Error::InvalidCertificate(_))
            if error.to_string().contains("CaUsedAsEndEntity") =>
        {
            "the server certificate must not be a CA certificate; issue it with \
             basicConstraints=CA:FALSE"
        }
        Some(rustls::Error::InvalidMessage(_)) => {
            "the server does not seem to speak TLS on this port; for plaintext use redis:// or \
             http://"
        }
        _ => return error,
    };
    io::Error::new(error.kind(), format!("{error}; {hint}"))
}

fn config(options: &TlsOptions, identity: Arc<Identity>) -> Result<ClientConfig, String> {
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots(options)?);
    Ok(builder.with_client_cert_resolver(identity))
}

/// A certificate with its matching key.
fn certified((chain, key): &(Vec<u8>, Vec<u8>)) -> Result<CertifiedKey, String> {
    let chain = certificates(chain, "the client certificate")?;
    let key = private_key(key)?;
    let certified = CertifiedKey::from_der(chain, key, &ring::default_provider());
    certified.map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => {
            "the client's private key does not match its certificate".into()
        }
        error => format!("invalid client certificate or private key: {error}"),
    })
}

fn private_key(pem: &[u8]) -> Result<PrivateKeyDer<'static>, String> {
    if String::from_utf8_lossy(pem).contains("ENCRYPTED") {
        return Err(
            "the client's private key is encrypted; decrypt it with `openssl pkey -in KEY -out \
             PLAIN`, and restrict access to that file"
                .into(),
        );
    }
    PrivateKeyDer::from_pem_slice(pem).map_err(|_| {
        "the client's private key is not PEM: no complete PRIVATE KEY found; convert it with \
         `openssl pkey`"
            .into()
    })
}

fn roots(options: &TlsOptions) -> Result<RootCertStore, String> {
    if let Some(pem) = &options.ca_pem {
        return trusted(pem);
    }
    let mut roots = RootCertStore::empty();
    // Some of a system's certificates may be broken; the others still work.
    let found = rustls_native_certs::load_native_certs();
    match roots.add_parsable_certificates(found.certs) {
        (0, _) => {
            Err("this system has no trusted certificates; set them: tls_ca, or --tls-ca".into())
        }
        _ => Ok(roots),
    }
}

/// The CA certificates in a file.
fn trusted(pem: &[u8]) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(pem, "the CA certificate")? {
        let added = roots.add(certificate);
        added.map_err(|error| format!("invalid CA certificate: {error}"))?;
    }
    Ok(roots)
}

fn certificates(pem: &[u8], what: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match all {
        Ok(all) if !all.is_empty() => Ok(all),
        _ => Err(format!(
            "{what} is not PEM: no complete CERTIFICATE found; convert it with `openssl x509`"
        )),
    }
}
