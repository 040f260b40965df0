//! TLS certificates for test servers.

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

/// A server certificate with its key and the authority that signed it, as PEM.
#[derive(Debug)]
pub struct Certificate {
    /// Certificate of the authority.
    pub authority: String,
    /// Certificate of the server.
    pub certificate: String,
    /// Its private key.
    pub key: String,
}

impl Certificate {
    /// Creates a certificate for a name or an address, with its own authority.
    ///
    /// # Panics
    /// If the name is invalid.
    pub fn new(name: &str) -> Self {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = params.self_signed(&key).expect("an authority").pem();
        let issuer = Issuer::new(params, key);
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        let certificate = params.signed_by(&key, &issuer).expect("a certificate").pem();
        Self { authority, certificate, key: key.serialize_pem() }
    }
}
