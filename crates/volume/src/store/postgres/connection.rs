//! Connections to a PostgreSQL server: made when they are wanted, dropped at the first sign of trouble.

use std::future::Future;
use std::time::Duration;

use parking_lot::Mutex;
use tokio_postgres::{Client, Config, Error};

use super::passfile;
use super::schema::Statements;
use super::tls::{self, Tls};
use crate::keepalive;
use crate::store::StoreError;

/// No answer by then is no connection. Longer than the server lets a statement take.
const ANSWER: Duration = Duration::from_secs(30);
const CONNECT: Duration = Duration::from_secs(5);
/// As the library says that TLS failed, whatever the cause.
const NO_TLS: &str = "error performing TLS handshake";
/// What helps where the address says nothing of TLS.
const TRUSTED: &str = "a server on another machine must show a certificate for its name that this machine trusts: say \
                       ?sslrootcert=FILE, or by ?sslmode= what is enough";
/// Connections that are kept while nobody uses them.
const IDLE: usize = 4;

pub(super) struct Connection {
    pub client: Client,
    pub ready: Statements,
}

/// What carries the messages of a connection.
pub(super) type Dialled =
    tokio_postgres::Connection<tokio_postgres::Socket, tls::Stream<tokio_postgres::Socket>>;

/// Of one server.
pub(super) struct Pool {
    config: Config,
    tls: Tls,
    idle: Mutex<Vec<Connection>>,
}

impl Pool {
    pub fn new(address: &str) -> Result<Self, StoreError> {
        let (mut config, tls) = tls::split(address)?;
        passfile::complete(&mut config)?;
        // A server that went silent is found out, not waited for.
        config.connect_timeout(CONNECT).tcp_user_timeout(keepalive::USER_TIMEOUT);
        config.keepalives_idle(keepalive::KEEPALIVE_IDLE).keepalives_interval(keepalive::KEEPALIVE_INTERVAL);
        if config.get_application_name().is_none() {
            config.application_name("shunt");
        }
        Ok(Self { config, tls, idle: Mutex::default() })
    }

    /// A connection, and what has to be polled for it.
    pub async fn dial(&self) -> Result<(Client, Dialled), StoreError> {
        // The time that is set is for each address, and for none of looking up names.
        let most = CONNECT * (1 + self.config.get_hosts().len() as u32);
        match tokio::time::timeout(most, in_time(self.config.connect(self.tls.clone()))).await {
            Ok(Err(StoreError::Unreachable(said))) if self.tls.assumed && said.contains(NO_TLS) => {
                Err(StoreError::Unreachable(format!("{said}; {TRUSTED}")))
            }
            Ok(dialled) => dialled,
            Err(_) => Err(StoreError::Unreachable("the database cannot be connected to".into())),
        }
    }

    /// One that was used before and still lives, or a new one.
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

    /// To be used again: only one that is in no transaction and owes no answer.
    pub fn give_back(&self, connection: Connection) {
        let mut idle = self.idle.lock();
        if idle.len() < IDLE && !connection.client.is_closed() {
            idle.push(connection);
        }
    }

    pub async fn connect(&self) -> Result<Client, StoreError> {
        let (client, connection) = self.dial().await?;
        crate::runtime::runtime().spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection to the database ended");
            }
        });
        // A node that is cut off in the middle of a commit must not hold the volume for longer than this.
        let limits = "SET statement_timeout = '20s'; SET idle_in_transaction_session_timeout = '20s'";
        in_time(client.batch_execute(limits)).await?;
        Ok(client)
    }
}

/// What is asked of a server, within the time that it has.
pub(super) async fn in_time<T>(what: impl Future<Output = Result<T, Error>>) -> Result<T, StoreError> {
    match tokio::time::timeout(ANSWER, what).await {
        Ok(answer) => answer.map_err(fault),
        Err(_) => Err(StoreError::Unreachable("the database does not answer".into())),
    }
}

/// What the server says, as the caller has to understand it.
pub(super) fn fault(error: Error) -> StoreError {
    let said = match error.as_db_error() {
        Some(said) => format!("{} ({})", said.message(), said.code().code()),
        None => std::error::Error::source(&error)
            .map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}")),
    };
    match error.code().map(|code| &code.code()[..2]) {
        // Data exceptions, broken constraints, unknown tables: what is there is not what was made.
        Some("22" | "23" | "42" | "XX") => StoreError::Damaged(said),
        _ => StoreError::Unreachable(said),
    }
}

/// Whether the same transaction may well succeed the next time: serialization failures and deadlocks.
pub(super) fn is_worth_another_try(error: &Error) -> bool {
    error.code().is_some_and(|code| matches!(code.code(), "40001" | "40P01"))
}
