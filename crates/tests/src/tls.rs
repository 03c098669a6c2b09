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

/// A certificate with its key, on disk, for servers.
#[derive(Debug)]
pub struct TlsFiles(TempDir);

impl TlsFiles {
    /// For servers of that name.
    ///
    /// # Panics
    /// When they cannot be written.
    #[must_use]
    pub fn new(authority: &Authority, name: &str) -> Self {
        let files = tempfile::tempdir().expect("a temporary directory");
        let (certificate, key) = authority.certificate(name);
        for (name, text) in [
            ("cert.pem", certificate),
            ("key.pem", key),
            ("ca.pem", authority.pem()),
        ] {
            std::fs::write(files.path().join(name), text).expect("a file");
        }
        Self(files)
    }

    /// What a server is told to speak TLS at that port. It asks clients for certificates of the same authority
    /// as `tls-auth-clients` says: `yes`, `no` or `optional`.
    #[must_use]
    pub fn words(&self, port: u16, auth_clients: &str) -> Vec<String> {
        let path = |name: &str| self.0.path().join(name).display().to_string();
        let options = [
            ("--tls-port", port.to_string()),
            ("--tls-cert-file", path("cert.pem")),
            ("--tls-key-file", path("key.pem")),
            ("--tls-ca-cert-file", path("ca.pem")),
            ("--tls-auth-clients", auth_clients.to_owned()),
        ];
        let words = options.map(|(option, value)| [option.to_owned(), value]);
        words.concat()
    }
}

/// A server that speaks TLS under the name `localhost`.
pub struct TlsServer {
    url: String,
    server: RedisServer,
    _files: TlsFiles,
}

impl TlsServer {
    /// Starts one. It asks clients for certificates of that authority as `tls-auth-clients` says:
    /// `yes`, `no` or `optional`.
    ///
    /// # Panics
    /// When it does not come up.
    #[must_use]
    pub fn start(authority: &Authority, auth_clients: &str) -> Self {
        let files = TlsFiles::new(authority, "localhost");
        let port = free_port();
        let server = RedisServer::start_with(ServerOptions {
            args: files.words(port, auth_clients),
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
