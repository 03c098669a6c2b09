//! Servers that speak TLS, and an authority of our own that signs their certificates.
//!
//! No certificate here may ever be one that a system trusts.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tempfile::TempDir;

use crate::{RedisServer, ServerOptions, free_port};

/// An authority that no system trusts.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    /// A new one.
    ///
    /// # Panics
    /// When there are no random numbers.
    #[must_use]
    #[allow(clippy::new_without_default, reason = "each is another one")]
    pub fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // Otherwise it has the name of all others, and a server takes them for self-signed.
        let name = &mut params.distinguished_name;
        name.push(DnType::CommonName, "authority");
        let key = KeyPair::generate().expect("a key");
        Self(CertifiedIssuer::self_signed(params, key).expect("a certificate"))
    }

    /// Its certificate.
    #[must_use]
    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// A certificate for that name, and its key, in PEM.
    ///
    /// # Panics
    /// When the name cannot be one.
    #[must_use]
    pub fn certificate(&self, name: &str) -> (String, String) {
        self.signed(CertificateParams::new(vec![name.to_owned()]).expect("a name"))
    }

    /// One whose time is over.
    ///
    /// # Panics
    /// When the name cannot be one.
    #[must_use]
    pub fn expired_certificate(&self, name: &str) -> (String, String) {
        let mut params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(2021, 1, 1);
        self.signed(params)
    }

    fn signed(&self, params: CertificateParams) -> (String, String) {
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.0).expect("a certificate");
        (certificate.pem(), key.serialize_pem())
    }
}

/// A server that speaks TLS under the name `localhost`.
pub struct TlsServer {
    url: String,
    server: RedisServer,
    _files: TempDir,
}

impl TlsServer {
    /// Starts one. It asks clients for certificates of that authority as `tls-auth-clients` says:
    /// `yes`, `no` or `optional`.
    ///
    /// # Panics
    /// When it does not come up.
    #[must_use]
    pub fn start(authority: &Authority, auth_clients: &str) -> Self {
        let files = tempfile::tempdir().expect("a temporary directory");
        let (certificate, key) = authority.certificate("localhost");
        let write = |name: &str, text: String| {
            let path = files.path().join(name);
            std::fs::write(&path, text).expect("a file");
            path.display().to_string()
        };
        let port = free_port().to_string();
        let options = [
            ("--tls-port", port.clone()),
            ("--tls-cert-file", write("cert.pem", certificate)),
            ("--tls-key-file", write("key.pem", key)),
            ("--tls-ca-cert-file", write("ca.pem", authority.pem())),
            ("--tls-auth-clients", auth_clients.to_owned()),
        ];
        let words = options.map(|(option, value)| [option.to_owned(), value]);
        let server = RedisServer::start_with(ServerOptions {
            args: words.concat(),
            password: None,
        });
        Self {
            url: format!("rediss://localhost:{port}"),
            server,
            _files: files,
        }
    }

    /// `rediss://localhost:PORT`
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The server itself.
    #[must_use]
    pub fn server(&self) -> &RedisServer {
        &self.server
    }
}
