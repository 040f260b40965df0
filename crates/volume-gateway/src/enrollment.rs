//! Enrollment: a machine becomes a node of a gateway by a token, which is passed out of band. The token names the gateway, its
//! authority and a single-use secret; the machine redeems it for a certificate and stores its [`Credentials`] in a file.

use std::io;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use shunt_volume_types::id::{NodeName, VolumeName};
use shunt_volume_types::keepalive::{USER_TIMEOUT, end_when_silent};
use shunt_volume_types::private;
use shunt_volume_types::runtime::runtime;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

use super::NAME;
use super::certificates::{self, BadCertificate};
use super::protocol::{
    ClientHello, MAX_FRAME_BYTES, NODE_VERSION, Purpose, RESPONSE_VERSION, Role, ServerHello, receive, send,
};

/// Timeout for a gateway's reply to a token: other processes may have its registry locked.
const ENROLL_TIMEOUT: Duration = Duration::from_secs(30);
/// Timeout for establishing a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Prefix of a token.
const TOKEN_PREFIX: &str = "shunt1.";

/// An invitation. Its bearer may join the volume, once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token {
    /// Host and port of the gateway.
    pub address: String,
    /// The volume.
    pub volume: VolumeName,
    /// Certificate of the gateway's authority, DER.
    pub authority: Vec<u8>,
    /// Single-use secret.
    pub secret: [u8; 16],
}

impl Token {
    /// Creates a token for a node of the gateway at `address`.
    pub fn new(
        address: String,
        volume: VolumeName,
        registry: &super::NodeRegistry,
        secret: [u8; 16],
    ) -> Self {
        Self { address, volume, authority: registry.authority().certificate.clone(), secret }
    }
}

impl std::fmt::Display for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let bytes = postcard::to_stdvec(self).map_err(|_| std::fmt::Error)?;
        write!(f, "{TOKEN_PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes))
    }
}

impl FromStr for Token {
    type Err = JoinError;

    fn from_str(text: &str) -> Result<Self, JoinError> {
        let text: String = text.split_whitespace().collect();
        text.strip_prefix(TOKEN_PREFIX)
            .and_then(|rest| URL_SAFE_NO_PAD.decode(rest).ok())
            .and_then(|bytes| postcard::from_bytes(&bytes).ok())
            .ok_or(JoinError::Token)
    }
}

/// An error of joining a volume.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// The token is malformed, usually truncated on copying.
    #[error(
        "invalid token: a token of `shunt volume invite` begins with {TOKEN_PREFIX:?}; copy it completely"
    )]
    Token,
    /// The gateway refused, for this reason.
    #[error("the gateway refused the request: {0}")]
    Refused(String),
    /// The gateway cannot be reached.
    #[error("the gateway at {address} cannot be reached: {error}")]
    Unreachable {
        /// Host and port.
        address: String,
        /// The cause.
        error: io::Error,
    },
    /// Invalid keys or certificates.
    #[error(transparent)]
    Certificate(#[from] BadCertificate),
    /// The credentials file cannot be read or written.
    #[error("cannot access {path}: {error}")]
    File {
        /// The path.
        path: String,
        /// The cause.
        error: io::Error,
    },
}

/// The credentials by which a node authenticates to its gateway. Their bearer is that node.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Credentials {
    /// Host and port of the gateway.
    pub address: String,
    /// The volume.
    pub volume: VolumeName,
    /// The name of this node.
    pub node: NodeName,
    authority: Vec<u8>,
    certificate: Vec<u8>,
    key: Vec<u8>,
    about: Vec<u8>,
    /// The role that the gateway reported last; unknown for a file of an older version.
    #[serde(default)]
    pub role: Option<Role>,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials")
            .field("address", &self.address)
            .field("node", &self.node)
            .finish_non_exhaustive()
    }
}

impl Credentials {
    /// Writes the credentials to a file that only its owner can read, atomically.
    ///
    /// # Errors
    /// [`JoinError::File`]
    pub fn save(&self, path: &Path) -> Result<(), JoinError> {
        let text = serde_json::to_vec_pretty(self).map_err(io::Error::other);
        text.and_then(|text| private::write(path, &text))
            .map_err(|error| JoinError::File { path: path.display().to_string(), error })
    }

    /// Returns the credentials for another gateway of the volume with the same registry.
    pub fn with_address(mut self, address: &str) -> Self {
        address.clone_into(&mut self.address);
        self
    }

    /// Reads credentials from a file, which has the private key of the node.
    ///
    /// # Errors
    /// [`JoinError::File`], also if the file is readable by others than its owner.
    pub fn load(path: &Path) -> Result<Self, JoinError> {
        private::open(path)
            .and_then(|file| serde_json::from_reader(io::BufReader::new(file)).map_err(io::Error::other))
            .map_err(|error| JoinError::File { path: path.display().to_string(), error })
    }

    /// Returns the volume's descriptor in the stored form.
    pub fn descriptor(&self) -> &[u8] {
        &self.about
    }

    /// Records the role of this node in the file, for when the gateway is unreachable. Fails if the file does not exist any
    /// more.
    pub(super) fn record_role(path: &Path, role: Role) -> Result<(), JoinError> {
        let mut credentials = Self::load(path)?;
        if credentials.role == Some(role) {
            return Ok(());
        }
        credentials.role = Some(role);
        credentials.save(path)
    }

    pub(super) fn tls(&self) -> Result<Arc<ClientConfig>, BadCertificate> {
        Ok(Arc::new(certificates::client(&self.authority, Some((&self.certificate, &self.key)))?))
    }
}

/// Connects and performs the handshake for a purpose.
pub(super) async fn greet(
    address: &str,
    config: Arc<ClientConfig>,
    volume: &VolumeName,
    version: u32,
    purpose: Purpose,
) -> io::Result<(TlsStream<TcpStream>, ServerHello)> {
    // Longer for an enrollment: a timeout would waste the token.
    let time = if matches!(purpose, Purpose::Work) { USER_TIMEOUT } else { ENROLL_TIMEOUT };
    let greeted = timeout(time, async {
        let stream = timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await??;
        stream.set_nodelay(true)?;
        end_when_silent(&stream)?;
        let name = ServerName::try_from(NAME).map_err(io::Error::other)?;
        let mut stream = TlsConnector::from(config).connect(name, stream).await?;
        let hello =
            ClientHello { version, volume: volume.clone(), purpose, response_version: RESPONSE_VERSION };
        send(&mut stream, &hello).await?;
        match receive(&mut stream, MAX_FRAME_BYTES, time).await? {
            Some(welcome) => Ok((stream, welcome)),
            None => Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
        }
    });
    greeted.await.unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::TimedOut)))
}

/// Redeems a token: this machine is `node` from now on.
///
/// # Errors
/// [`JoinError`]
pub fn join(token: &Token, node: &NodeName) -> Result<Credentials, JoinError> {
    runtime().block_on(enrol(token, node))
}

async fn enrol(token: &Token, node: &NodeName) -> Result<Credentials, JoinError> {
    let (key, request) = certificates::request(node)?;
    let config = Arc::new(certificates::client(&token.authority, None)?);
    let purpose = Purpose::Enrol { secret: token.secret, node: node.clone(), request };
    let (_, welcome) = greet(&token.address, config, &token.volume, NODE_VERSION, purpose)
        .await
        .map_err(|error| JoinError::Unreachable { address: token.address.clone(), error })?;
    let mut credentials = match welcome {
        ServerHello::Enrolled { certificate, about } => Credentials {
            address: token.address.clone(),
            volume: token.volume.clone(),
            node: node.clone(),
            authority: token.authority.clone(),
            certificate,
            key,
            about,
            role: None,
        },
        ServerHello::Refused(reason) => return Err(JoinError::Refused(reason)),
        ServerHello::Work(_) => {
            return Err(JoinError::Refused("unexpected reply to the enrolment".to_owned()));
        }
    };
    // A handshake for work reports the role. The node has joined even if this fails.
    if let Ok((_, ServerHello::Work(role))) =
        greet(&token.address, credentials.tls()?, &token.volume, NODE_VERSION, Purpose::Work).await
    {
        credentials.role = Some(role);
    }
    Ok(credentials)
}
