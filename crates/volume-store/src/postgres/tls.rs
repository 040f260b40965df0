//! TLS to a PostgreSQL server, as configured by `sslmode` and `sslrootcert` in its address, with the meaning they have in libpq.
//! Without `sslmode`, a server on another machine must show a valid certificate for its name, which is stricter than libpq.

use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};
use tokio_rustls::{TlsConnector, client};

use crate::StoreError;

/// The certificates that are accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Trust {
    /// Any: protects against eavesdropping, not against a man in the middle.
    Any,
    /// Signed by the roots in a file, or by the machine's; with `named` also issued for the host name of the address.
    Signed { roots: Option<PathBuf>, named: bool },
}

/// Splits an address into the client library's configuration and the TLS configuration.
pub(super) fn split(address: &str) -> Result<(Config, Tls), StoreError> {
    let (plain, trust, assumed) = read(address)?;
    Ok((plain, Tls { config: Arc::new(config(trust)?), assumed }))
}

fn invalid_tls_option(reason: impl std::fmt::Display) -> StoreError {
    StoreError::Unreachable(format!("invalid database address: {reason}"))
}

/// Parses an address without `sslmode` and `sslrootcert`, which are returned separately.
fn split_tls_options(address: &str) -> Result<(Config, Option<&str>, Option<&str>), StoreError> {
    let (before, query) = address.split_once('?').unwrap_or((address, ""));
    let (mut rest, mut mode, mut roots) = (Vec::new(), None, None);
    for word in query.split('&').filter(|word| !word.is_empty()) {
        match word.split_once('=') {
            Some(("sslmode", value)) => mode = Some(value),
            Some(("sslrootcert", value)) => roots = Some(value),
            _ => rest.push(word),
        }
    }
    let plain = format!("{before}?{}", rest.join("&")).parse().map_err(invalid_tls_option)?;
    Ok((plain, mode, roots))
}

/// Reports whether an address contains a password.
pub fn has_password(address: &str) -> bool {
    split_tls_options(address).is_ok_and(|(plain, ..)| plain.get_password().is_some())
}

/// Parses an address: the rest, the accepted certificates, and whether these are a default.
fn read(address: &str) -> Result<(Config, Trust, bool), StoreError> {
    let (mut plain, mode, roots) = split_tls_options(address)?;
    // Percent-encoded characters in this path are rare; refused rather than misread.
    if roots.is_some_and(|roots| roots.contains('%')) {
        return Err(invalid_tls_option("sslrootcert: percent-encoded characters are not supported"));
    }
    let file = roots.filter(|roots| *roots != "system").map(PathBuf::from);
    let assumed = mode.is_none() && !is_local(&plain);
    let (mode, trust) = match mode {
        // A man in the middle could claim that the server has no TLS, and receive the password.
        None if assumed => (SslMode::Require, Trust::Signed { roots: file, named: true }),
        None | Some("prefer" | "allow") => (SslMode::Prefer, Trust::Any),
        Some("disable") => (SslMode::Disable, Trust::Any),
        // With roots, `require` means `verify-ca`, as in libpq.
        Some("require") if roots.is_none() => (SslMode::Require, Trust::Any),
        Some("require" | "verify-ca") => (SslMode::Require, Trust::Signed { roots: file, named: false }),
        Some("verify-full") => (SslMode::Require, Trust::Signed { roots: file, named: true }),
        Some(_) => {
            return Err(invalid_tls_option(
                "sslmode must be disable, prefer, require, verify-ca or verify-full",
            ));
        }
    };
    plain.ssl_mode(mode);
    Ok((plain, trust, assumed))
}

/// Reports whether the server is on this machine.
fn is_local(config: &Config) -> bool {
    let host = |host: &Host| match host {
        Host::Unix(_) => true,
        Host::Tcp(name) => name == "localhost" || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback()),
    };
    match config.get_hostaddrs() {
        [] => config.get_hosts().iter().all(host),
        addresses => addresses.iter().all(IpAddr::is_loopback),
    }
}

fn config(trust: Trust) -> Result<ClientConfig, StoreError> {
    let provider = Arc::new(ring::default_provider());
    let (signed, named) = match trust {
        Trust::Any => (None, false),
        Trust::Signed { roots, named } => {
            let verifier = WebPkiServerVerifier::builder_with_provider(
                Arc::new(self::roots(roots.as_deref())?),
                provider.clone(),
            );
            (Some(verifier.build().map_err(invalid_tls_option)?), named)
        }
    };
    let verifier = Verifier { signed, named, provider: provider.clone() };
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config =
        config.map_err(invalid_tls_option)?.dangerous().with_custom_certificate_verifier(Arc::new(verifier));
    Ok(config.with_no_client_auth())
}

fn roots(file: Option<&std::path::Path>) -> Result<RootCertStore, StoreError> {
    let mut roots = RootCertStore::empty();
    match file {
        Some(file) => {
            let failed = |error: &dyn std::fmt::Display| {
                invalid_tls_option(format_args!("sslrootcert {}: {error}", file.display()))
            };
            for certificate in CertificateDer::pem_file_iter(file).map_err(|error| failed(&error))? {
                roots.add(certificate.map_err(|error| failed(&error))?).map_err(|error| failed(&error))?;
            }
            if roots.is_empty() {
                return Err(failed(&"the file contains no certificate"));
            }
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            if roots.is_empty() {
                return Err(invalid_tls_option(
                    "this machine has no trusted certificates: add sslrootcert=FILE or choose another sslmode",
                ));
            }
        }
    }
    Ok(roots)
}

#[derive(Debug)]
struct Verifier {
    signed: Option<Arc<WebPkiServerVerifier>>,
    named: bool,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(signed) = &self.signed else { return Ok(ServerCertVerified::assertion()) };
        match signed.verify_server_cert(shown, between, name, ocsp, now) {
            // The name is checked last: the rest of the certificate is valid.
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if !self.named => Ok(ServerCertVerified::assertion()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, shown, signature, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, shown, signature, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// The TLS connector for the client library.
#[derive(Clone)]
pub(super) struct Tls {
    config: Arc<ClientConfig>,
    /// The address does not configure TLS.
    pub(super) assumed: bool,
}

pub(super) struct Connect(Arc<ClientConfig>, ServerName<'static>);

pub(super) struct Stream<S>(client::TlsStream<S>);

type Socket<S> = Pin<Box<dyn Future<Output = io::Result<Stream<S>>> + Send>>;

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> MakeTlsConnect<S> for Tls {
    type Stream = Stream<S>;
    type TlsConnect = Connect;
    type Error = io::Error;

    fn make_tls_connect(&mut self, domain: &str) -> io::Result<Connect> {
        // A Unix socket has no host name, and no TLS.
        let name = ServerName::try_from(if domain.is_empty() { "localhost" } else { domain });
        let name = name.map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?.to_owned();
        Ok(Connect(self.config.clone(), name))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> TlsConnect<S> for Connect {
    type Stream = Stream<S>;
    type Error = io::Error;
    type Future = Socket<S>;

    fn connect(self, stream: S) -> Socket<S> {
        Box::pin(async move { TlsConnector::from(self.0).connect(self.1, stream).await.map(Stream) })
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for Stream<S> {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Stream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, into)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Stream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(address: &str) -> Option<(SslMode, Trust)> {
        read(address).ok().map(|(plain, trust, _)| (plain.get_ssl_mode(), trust))
    }

    fn signed(roots: Option<&str>, named: bool) -> Trust {
        Trust::Signed { roots: roots.map(PathBuf::from), named }
    }

    #[test]
    fn modes_are_those_of_libpq() {
        for (query, mode, trust) in [
            ("sslmode=disable", SslMode::Disable, Trust::Any),
            ("sslmode=prefer", SslMode::Prefer, Trust::Any),
            ("sslmode=require", SslMode::Require, Trust::Any),
            ("sslmode=require&sslrootcert=/r", SslMode::Require, signed(Some("/r"), false)),
            ("sslmode=verify-ca&sslrootcert=/r", SslMode::Require, signed(Some("/r"), false)),
            ("sslmode=verify-full&sslrootcert=system", SslMode::Require, signed(None, true)),
        ] {
            assert_eq!(of(&format!("postgres://u@h/d?{query}")), Some((mode, trust)), "{query}");
        }
        let (plain, ..) = read("postgres://u@h/d?application_name=x&sslmode=verify-full").unwrap();
        assert_eq!(plain.get_application_name(), Some("x"));
        for wrong in ["sslmode=verify", "sslmode=", "sslmode=require&sslrootcert=/a%20b"] {
            assert_eq!(of(&format!("postgres://u@h/d?{wrong}")), None, "{wrong}");
        }
    }

    #[test]
    fn remote_server_requires_a_certificate_by_default() {
        for here in
            ["localhost", "127.0.0.1", "127.1.2.3", "[::1]", "%2Frun%2Fpostgresql", "localhost,127.0.0.1"]
        {
            assert_eq!(of(&format!("postgres://u@{here}/d")), Some((SslMode::Prefer, Trust::Any)), "{here}");
        }
        for there in ["db1", "10.0.0.1", "localhost,db1", "localhost.example"] {
            let expected = Some((SslMode::Require, signed(None, true)));
            assert_eq!(of(&format!("postgres://u@{there}/d")), expected, "{there}");
        }
        let elsewhere = of("postgres://u@localhost/d?hostaddr=10.0.0.1&sslrootcert=/r");
        assert_eq!(elsewhere, Some((SslMode::Require, signed(Some("/r"), true))));
    }
}
