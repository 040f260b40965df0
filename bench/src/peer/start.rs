//! Starts a peer in the foreground, so that the harness can end its process.

use std::ffi::OsString;
use std::path::Path;

use anyhow::{Context, Result};

use super::guarded::guarded;
use super::uring::UringSwitch;
use super::{Cache, Peer, Program, Programs};
use crate::mounted::Mounted;

impl Programs {
    /// Mounts `source` at `at`. The daemon may open at most `descriptors` files, when given.
    ///
    /// # Errors
    /// When the program is missing or does not mount.
    pub fn start(&self, peer: Peer, source: &Path, at: &Path, descriptors: Option<u32>) -> Result<Mounted> {
        let program = self.path(peer.program).with_context(|| format!("{peer} is not installed"))?;
        let mut words: Vec<OsString> = vec![program.into()];
        let mut push = |text: &str| words.push(text.into());
        match peer.program {
            Program::Native => {}
            Program::Fuser => return super::fuser::start(program, source, at),
            Program::Bindfs => push("-f"),
            Program::Libfuse => {
                push("--foreground");
                if peer.daemon_data {
                    push("--nopassthrough");
                }
                if peer.uring {
                    ["-o", "io_uring"].into_iter().for_each(&mut push);
                }
            }
            Program::Shunt => {
                let cache = match peer.cache {
                    Cache::Exclusive => "exclusive",
                    Cache::Timeout => "timeout=1",
                    Cache::Coherent => "coherent",
                };
                ["mirror", "--cache", cache].into_iter().for_each(&mut push);
                if peer.daemon_data {
                    ["--passthrough", "off"].into_iter().for_each(&mut push);
                }
                if peer.always_passes {
                    ["--passthrough", "always"].into_iter().for_each(&mut push);
                }
                if peer.uring {
                    ["--transport", "uring"].into_iter().for_each(&mut push);
                }
                if peer.policy {
                    let rules = concat!(env!("CARGO_MANIFEST_DIR"), "/policy.toml");
                    ["--policy", rules].into_iter().for_each(&mut push);
                }
            }
        }
        words.extend([source.into(), at.into()]);
        let _uring = peer.uring.then(UringSwitch::on).transpose()?;
        Mounted::start(&mut guarded(&words, descriptors), at)
    }
}
