//! Certificates for servers of tests.

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

/// The certificate of a server, with the key and the authority that signed it, as PEM.
#[derive(Debug)]
pub struct Certificate {
    /// Of who signed it.
    pub authority: String,
    /// Its own.
    pub certificate: String,
    /// Key of the object.
    pub key: String,
}

impl Certificate {
    /// One of an authority of its own, for a name or an address.
    ///
    /// # Panics
    /// Where that makes no sense as a name.
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
