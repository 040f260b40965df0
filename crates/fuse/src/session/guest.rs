//! Sessions with the kernels of virtual machines: one after the other, as the guest boots, mounts and unmounts. INIT starts a
//! session with a new file system; DESTROY, or another INIT, ends it.

use std::io;
use std::sync::{Arc, OnceLock};

use parking_lot::RwLock;
use rustix::io::Errno;
use shunt_fuse_abi as abi;
use shunt_fuse_abi::{InHeader, InitIn, Opcode, ParseContext, Wire};

use super::{Agreed, Connection, Handle, Session, TransportInUse};
use crate::guardian::Guardian;
use crate::guardian::fd_store::{SESSION_STATE, StoredDescriptors};
use crate::negotiate::{Circumstances, Outcome, negotiate};
use crate::negotiate::{Config, Negotiated, NegotiationError, Transport};
use crate::session::FileSystem;
use crate::takeover::Takeover;
use crate::transport::Channel;
use crate::transport::device::Device;
use crate::transport::message::Message;
use crate::transport::virtio::Handler;

/// The server of a guest. The state of an earlier session is meaningless in the next one, so each session has a file system of
/// its own.
pub(crate) struct Guest<F> {
    make: Box<dyn Fn() -> io::Result<F> + Send + Sync>,
    began: Box<dyn Fn(&Handle) + Send + Sync>,
    config: Config,
    live: RwLock<Option<Arc<Session<F>>>>,
    /// Keeps the state of the session for a later server.
    guardian: OnceLock<Arc<Guardian>>,
}

impl<F: FileSystem> Guest<F> {
    /// `began` is called with the handle of every session.
    pub(crate) fn new(
        make: Box<dyn Fn() -> io::Result<F> + Send + Sync>,
        began: Box<dyn Fn(&Handle) + Send + Sync>,
        config: Config,
    ) -> Self {
        Self { make, began, config, live: RwLock::default(), guardian: OnceLock::new() }
    }

    /// Has the state of each session kept for a later server.
    pub(crate) fn set_guardian(&self, guardian: Arc<Guardian>) {
        self.guardian.set(guardian).ok();
    }

    /// Announces that no later server follows.
    pub(crate) fn end_guardian(&self) {
        if let Some(Err(error)) = self.guardian.get().map(|guardian| guardian.end()) {
            tracing::debug!("{error}");
        }
    }

    /// Continues the session of an earlier server; without its state there was none.
    pub(crate) fn resume(
        &self,
        fs: Arc<F>,
        mut held: StoredDescriptors,
        takeovers: u32,
    ) -> Result<(), NegotiationError> {
        let Some(guardian) = self.guardian.get().filter(|_| held.contains_key(&SESSION_STATE)) else {
            return Ok(());
        };
        let (takeover, mut negotiated) = Takeover::resume(guardian.clone(), &mut held, Vec::new(), takeovers)
            .map_err(NegotiationError::Start)?;
        negotiated.refused = crate::negotiate::refused_earlier(self.config.requested - negotiated.granted);
        if let Some(refusal) = negotiated.refusal(self.config.required) {
            return Err(NegotiationError::Required(refusal.clone()));
        }
        let session = self.start(fs, negotiated, Some(takeover))?;
        (self.began)(&session.agreed.handle);
        *self.live.write() = Some(Arc::new(session));
        Ok(())
    }

    fn start(
        &self,
        fs: Arc<F>,
        negotiated: Negotiated,
        takeover: Option<Takeover>,
    ) -> Result<Session<F>, NegotiationError> {
        let connection = Connection {
            device: Arc::new(Device::guest().map_err(NegotiationError::Start)?),
            negotiated,
            rings: None,
            transport: TransportInUse::new(Transport::Virtio, None),
        };
        Agreed::new(&self.config, connection, takeover.map(Arc::new)).start(fs)
    }

    /// Answers INIT. A guest that sends it again has rebooted.
    fn init(&self, channel: &Arc<dyn Channel>, header: &InHeader, message: &Message) {
        let mut live = self.live.write();
        self.end_session(live.take());
        let init = match abi::Request::parse(&message.bytes, &ParseContext::default()) {
            Ok(abi::Request { operation: abi::Operation::Init { arg }, .. }) => arg,
            _ => {
                channel.reply(header.unique, Err(Errno::INVAL), &[]).ok();
                return;
            }
        };
        match self.begin(&init) {
            Ok((out, session)) => {
                if let Some(session) = session {
                    (self.began)(&session.agreed.handle);
                    *live = Some(Arc::new(session));
                }
                drop(live);
                channel.reply(header.unique, Ok(()), &[out.as_bytes()]).ok();
            }
            Err(error) => {
                tracing::error!("cannot start the session of a guest: {error}");
                channel.reply(header.unique, Err(Errno::PROTO), &[]).ok();
            }
        }
    }

    fn begin(&self, init: &InitIn) -> Result<(abi::InitOut, Option<Session<F>>), NegotiationError> {
        let circumstances = Circumstances { may_register_backing_files: false, local_device: false };
        let (out, negotiated) = match negotiate(init, &self.config, circumstances)? {
            Outcome::Agreed(out, negotiated) => (out, negotiated),
            Outcome::AskAgain(out) => return Ok((out, None)),
        };
        let fs = (self.make)().map_err(NegotiationError::Start)?;
        let takeover = self.guardian.get().and_then(|guardian| {
            Takeover::begin_guest(guardian.clone(), &negotiated)
                .inspect_err(|error| tracing::warn!("no takeover after a crash: {error}"))
                .ok()
        });
        let session = self.start(Arc::new(fs), negotiated, takeover)?;
        Ok((out, Some(session)))
    }

    /// Ends the session: the guest has disconnected or unmounted.
    pub(crate) fn end(&self) {
        let session = self.live.write().take();
        self.end_session(session);
    }

    fn end_session(&self, session: Option<Arc<Session<F>>>) {
        let Some(session) = session else { return };
        session.end();
        if let Some(Err(error)) = self.guardian.get().map(|guardian| guardian.end_session()) {
            tracing::warn!("{error}");
        }
    }
}

impl<F: FileSystem> Handler for Guest<F> {
    fn handle(&self, channel: Arc<dyn Channel>, header: &InHeader, message: Message) {
        let opcode = Opcode::from_raw(header.opcode);
        if opcode == Some(Opcode::Init) {
            self.init(&channel, header, &message);
            return;
        }
        if opcode == Some(Opcode::Destroy) {
            // Before the reply: on receiving it the guest may start a new session.
            self.end();
            channel.reply(header.unique, Ok(()), &[]).ok();
            return;
        }
        let Some(session) = self.live.read().clone() else {
            // Requests without a reply are dropped.
            if opcode.is_none_or(Opcode::has_reply) {
                channel.reply(header.unique, Err(Errno::NOTCONN), &[]).ok();
            }
            return;
        };
        super::serve::serve(&session.fs, &session.agreed.handle, &channel, header, message);
    }

    fn malformed(&self) {
        if let Some(session) = &*self.live.read() {
            session.agreed.handle.shared.statistics.malformed();
        }
    }
}
