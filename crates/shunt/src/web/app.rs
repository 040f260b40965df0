//! The state that all requests share.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use axum::http::StatusCode;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::metrics::HostSource;

use super::error::{Failure, Result};
use super::sessions::{Sessions, random};

/// Limit of the requests that are handled at a time. More are refused, not queued: a browser asks again.
pub const MAX_REQUESTS: usize = 24;
/// Limit of the downloads at a time. Each has a thread until the browser has received the file, however slowly.
pub const MAX_DOWNLOADS: usize = 16;

/// Options of the command.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Requests may change volumes.
    pub allow_changes: bool,
    /// Registries of gateways that are not at their default places, by the names of volumes.
    pub registries: BTreeMap<String, PathBuf>,
}

/// The state of the server.
pub struct App {
    pub settings: Settings,
    /// First component of all paths. A browser sends the session's cookie only below it, and so not to another server on this
    /// machine: cookies do not distinguish ports.
    pub prefix: String,
    pub sessions: Sessions,
    pub source: HostSource,
    /// Receives the link for the next browser.
    pub print_link: Box<dyn Fn(&str) + Send + Sync>,
    /// Address of the server, as the links have it: `127.0.0.1:9550`.
    pub address: String,
    requests: Arc<Semaphore>,
    downloads: Arc<Semaphore>,
}

impl App {
    pub fn new(
        address: String,
        settings: Settings,
        print_link: impl Fn(&str) + Send + Sync + 'static,
    ) -> Self {
        let mut prefix = random();
        prefix.truncate(16);
        App {
            settings,
            prefix,
            sessions: Sessions::new(),
            source: HostSource::default(),
            print_link: Box::new(print_link),
            address,
            requests: Arc::new(Semaphore::new(MAX_REQUESTS)),
            downloads: Arc::new(Semaphore::new(MAX_DOWNLOADS)),
        }
    }

    /// The link that begins a session, once.
    pub fn link(&self) -> String {
        format!("http://{}/{}/login?token={}", self.address, self.prefix, self.sessions.token())
    }

    /// Takes part in the limit of the downloads, until the permit is dropped.
    ///
    /// # Errors
    /// Too many downloads run.
    pub fn download_permit(&self) -> Result<OwnedSemaphorePermit> {
        acquire(&self.downloads, "too many downloads run; wait until one has ended, or cancel one")
    }

    /// Runs a blocking handler in a thread of its own.
    ///
    /// # Errors
    /// Those of the handler; or too many requests are being handled.
    pub async fn block<T: Send + 'static>(
        self: &Arc<Self>,
        handler: impl FnOnce(&App) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let permit = acquire(&self.requests, "too many requests wait; try again in a moment")?;
        let app = self.clone();
        let work = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            handler(&app)
        });
        work.await.unwrap_or_else(|_| {
            Err(Failure::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                "the request failed; see the log of shunt web",
            ))
        })
    }
}

fn acquire(limit: &Arc<Semaphore>, message: &str) -> Result<OwnedSemaphorePermit> {
    let permit = limit.clone().try_acquire_owned();
    permit.map_err(|_| Failure::new(StatusCode::SERVICE_UNAVAILABLE, message))
}
