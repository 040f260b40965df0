//! A pool of connections to a PostgreSQL server: opened on demand, dropped at the first error. All queries have a timeout, and
//! the server has shorter ones, so that a node that is cut off does not lock a volume for long.

use std::future::Future;
use std::time::Duration;

use parking_lot::Mutex;
use shunt_volume_types::keepalive;
use tokio_postgres::{Client, Config, Error};

use super::passfile;
use super::schema::Statements;
use super::tls::{self, Tls};
use crate::StoreError;

/// Timeout of a round trip; after it the connection is taken for dead. Longer than the server's `statement_timeout`.
pub(super) const ROUND_TRIP_TIMEOUT: Duration = Duration::from_secs(30);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The library's message for a TLS failure of any cause.
const NO_TLS: &str = "error performing TLS handshake";
/// The remedy, if the address does not configure TLS.
const TLS_REMEDY: &str = "a server on another machine must present a certificate for its name that this machine trusts: add \
                       ?sslrootcert=FILE to the address, or choose a weaker check with ?sslmode=MODE";
/// Maximum number of idle connections.
const MAX_IDLE_CONNECTIONS: usize = 4;

pub(super) struct Connection {
    pub client: Client,
    pub ready: Statements,
}

/// The connection's I/O half, which has to be polled.
pub(super) type ConnectionDriver =
    tokio_postgres::Connection<tokio_postgres::Socket, tls::Stream<tokio_postgres::Socket>>;

/// The pool for one server.
pub(super) struct Pool {
    config: Config,
    tls: Tls,
    idle: Mutex<Vec<Connection>>,
}

impl Pool {
    pub fn new(address: &str) -> Result<Self, StoreError> {
        let (mut config, tls) = tls::split(address)?;
        passfile::complete(&mut config)?;
        // Detects a server that went silent.
        config.connect_timeout(CONNECT_TIMEOUT).tcp_user_timeout(keepalive::USER_TIMEOUT);
        config.keepalives_idle(keepalive::KEEPALIVE_IDLE).keepalives_interval(keepalive::KEEPALIVE_INTERVAL);
        if config.get_application_name().is_none() {
            config.application_name("shunt");
        }
        Ok(Self { config, tls, idle: Mutex::default() })
    }

    /// Opens a connection; returns its client and the I/O half to be polled.
    pub(crate) async fn open_connection(&self) -> Result<(Client, ConnectionDriver), StoreError> {
        // `connect_timeout` applies to each address, and not to name resolution.
        let timeout = CONNECT_TIMEOUT * (1 + self.config.get_hosts().len() as u32);
        match tokio::time::timeout(timeout, in_time(self.config.connect(self.tls.clone()))).await {
            Ok(Err(StoreError::Unreachable(message))) if self.tls.assumed && message.contains(NO_TLS) => {
                Err(StoreError::Unreachable(format!("{message}; {TLS_REMEDY}")))
            }
            Ok(dialled) => dialled,
            Err(_) => Err(StoreError::Unreachable("the connection to the database timed out".into())),
        }
    }

    /// Returns an idle connection that is still alive, or a new one.
    pub async fn take(&self) -> Result<Connection, StoreError> {
        loop {
            let idle = self.idle.lock().pop();
            match idle {
                Some(connection) if connection.client.is_closed() => {}
                Some(connection) => return Ok(connection),
                None => break,
            }
        }
        let client = self.connect().await?;
        let ready = in_time(Statements::prepare(&client)).await?;
        Ok(Connection { client, ready })
    }

    /// Returns a connection to the pool; it must have no open transaction and no outstanding reply.
    pub fn put_back(&self, connection: Connection) {
        let mut idle = self.idle.lock();
        if idle.len() < MAX_IDLE_CONNECTIONS && !connection.client.is_closed() {
            idle.push(connection);
        }
    }

    pub async fn connect(&self) -> Result<Client, StoreError> {
        let (client, connection) = self.open_connection().await?;
        shunt_volume_types::runtime::runtime().spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "connection to the database ended");
            }
        });
        // A node that is cut off in the middle of a commit must not lock the volume for longer than this.
        let limits = "SET statement_timeout = '20s'; SET idle_in_transaction_session_timeout = '20s'";
        in_time(client.batch_execute(limits)).await?;
        Ok(client)
    }
}

/// Awaits a query, with a timeout.
pub(super) async fn in_time<T>(what: impl Future<Output = Result<T, Error>>) -> Result<T, StoreError> {
    match tokio::time::timeout(ROUND_TRIP_TIMEOUT, what).await {
        Ok(answer) => answer.map_err(fault),
        Err(_) => Err(StoreError::Unreachable("no response from the database".into())),
    }
}

/// Maps an error of the server to a [`StoreError`].
pub(super) fn fault(error: Error) -> StoreError {
    let message = match error.as_db_error() {
        Some(error) => format!("{} ({})", error.message(), error.code().code()),
        None => std::error::Error::source(&error)
            .map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}")),
    };
    match error.code().map(|code| &code.code()[..2]) {
        // Data exceptions, constraint violations, unknown tables: the stored data is not what this program wrote.
        Some("22" | "23" | "42" | "XX") => StoreError::Damaged(message),
        _ => StoreError::Unreachable(message),
    }
}

/// Reports whether a retry of the transaction may succeed: serialization failures and deadlocks.
pub(super) fn is_retryable(error: &Error) -> bool {
    error.code().is_some_and(|code| matches!(code.code(), "40001" | "40P01"))
}
