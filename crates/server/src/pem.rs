//! Certificates in files.

use std::path::Path;

use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;

/// All certificates of a file, at least one; or what is wrong with it.
pub(crate) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let fault = |why: &dyn std::fmt::Display| format!("{} cannot be used: {why}", path.display());
    let all = CertificateDer::pem_file_iter(path).map_err(|error| fault(&error))?;
    let all: Result<Vec<_>, _> = all.collect();
    match all {
        Ok(all) if all.is_empty() => Err(fault(&"it has no certificate")),
        Ok(all) => Ok(all),
        Err(error) => Err(fault(&error)),
    }
}
