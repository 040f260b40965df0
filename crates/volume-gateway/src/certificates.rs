//! Certificates: each gateway has an authority, which signs its own certificate and those of its nodes. The authority is stored
//! in the [registry](super::registry); a gateway makes a new certificate of its own whenever it starts. The private key of a node
//! never leaves the node, which sends a signing request.

use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DnType, ExtendedKeyUsagePurpose,
    IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use shunt_volume_types::id::NodeName;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::{CertificateDer, CertificateSigningRequestDer, PrivatePkcs8KeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};

use super::NAME;

/// Invalid keys or certificates; one line.
#[derive(Debug, thiserror::Error)]
#[error("invalid key or certificate: {0}")]
pub struct BadCertificate(String);

fn bad(error: impl std::fmt::Display) -> BadCertificate {
    BadCertificate(error.to_string())
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// The certificate authority of a gateway.
pub(super) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// The certificate in DER.
    pub(super) certificate: Vec<u8>,
}

fn authority_params() -> Result<CertificateParams, BadCertificate> {
    let mut params = CertificateParams::new(Vec::new()).map_err(bad)?;
    params.distinguished_name.push(DnType::CommonName, "shunt gateway authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(params)
}

impl Authority {
    /// Creates an authority; returns it with its key (PKCS #8).
    pub(super) fn generate() -> Result<(Self, Vec<u8>), BadCertificate> {
        let key = KeyPair::generate().map_err(bad)?;
        let params = authority_params()?;
        let certificate = params.self_signed(&key).map_err(bad)?.der().to_vec();
        let secret = key.serialize_der();
        Ok((Self { issuer: Issuer::new(params, key), certificate }, secret))
    }

    /// Restores an authority from its certificate and key.
    pub(super) fn restore(certificate: Vec<u8>, secret: &[u8]) -> Result<Self, BadCertificate> {
        let key = KeyPair::try_from(secret).map_err(bad)?;
        Ok(Self { issuer: Issuer::new(authority_params()?, key), certificate })
    }

    /// Creates the gateway's own certificate and key.
    fn own(&self) -> Result<(Vec<u8>, Vec<u8>), BadCertificate> {
        let key = KeyPair::generate().map_err(bad)?;
        let mut params = CertificateParams::new(vec![NAME.to_owned()]).map_err(bad)?;
        params.distinguished_name.push(DnType::CommonName, NAME);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let certificate = params.signed_by(&key, &self.issuer).map_err(bad)?;
        Ok((certificate.der().to_vec(), key.serialize_der()))
    }

    /// Signs a certificate for a node that proved possession of its key. Other fields of its request are ignored.
    pub(super) fn sign(&self, node: &NodeName, request: &[u8]) -> Result<Vec<u8>, BadCertificate> {
        let request = CertificateSigningRequestDer::from(request);
        let mut csr = CertificateSigningRequestParams::from_der(&request).map_err(bad)?;
        csr.params = CertificateParams::new(Vec::new()).map_err(bad)?;
        csr.params.distinguished_name.push(DnType::CommonName, node.as_str());
        csr.params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        Ok(csr.signed_by(&self.issuer).map_err(bad)?.der().to_vec())
    }

    /// Returns the TLS configuration of a gateway. Clients without a certificate may connect, to enrol.
    pub(super) fn server(&self) -> Result<ServerConfig, BadCertificate> {
        let (certificate, key) = self.own()?;
        let roots = Arc::new(roots(&self.certificate)?);
        let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider())
            .allow_unauthenticated()
            .build()
            .map_err(bad)?;
        ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(bad)?
            .with_client_cert_verifier(verifier)
            .with_single_cert(vec![CertificateDer::from(certificate)], PrivatePkcs8KeyDer::from(key).into())
            .map_err(bad)
    }
}

fn roots(authority: &[u8]) -> Result<RootCertStore, BadCertificate> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from(authority.to_vec())).map_err(bad)?;
    Ok(roots)
}

/// Returns the TLS configuration of a node, with its certificate and key once it is enrolled.
pub(super) fn client(authority: &[u8], own: Option<(&[u8], &[u8])>) -> Result<ClientConfig, BadCertificate> {
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(bad)?
        .with_root_certificates(roots(authority)?);
    match own {
        None => Ok(builder.with_no_client_auth()),
        Some((certificate, key)) => builder
            .with_client_auth_cert(
                vec![CertificateDer::from(certificate.to_vec())],
                PrivatePkcs8KeyDer::from(key.to_vec()).into(),
            )
            .map_err(bad),
    }
}

/// Generates a key (PKCS #8) and a signing request for it.
pub(super) fn request(node: &NodeName) -> Result<(Vec<u8>, Vec<u8>), BadCertificate> {
    let key = KeyPair::generate().map_err(bad)?;
    let mut params = CertificateParams::new(Vec::new()).map_err(bad)?;
    params.distinguished_name.push(DnType::CommonName, node.as_str());
    let request = params.serialize_request(&key).map_err(bad)?;
    Ok((key.serialize_der(), request.der().to_vec()))
}
