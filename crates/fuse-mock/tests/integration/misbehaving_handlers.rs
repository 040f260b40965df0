//! Tests of handlers whose replies are too long, or that block while others wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use shunt_fuse::*;
use shunt_fuse_mock::{OpenFile, Served};

use crate::common;

/// READ returns one byte too many; WRITE blocks its thread until it is interrupted, for two seconds at most; GETXATTR waits,
/// then, for a size of 1 byte, blocks its thread until it is released.
#[derive(Default)]
struct MisbehavingFs(Arc<common::Gate>, AtomicBool);

impl FileSystem for MisbehavingFs {
    async fn read(&self, _: &Request<'_>, _: NodeId, args: ReadArgs) -> Result<Data<'_>, Errno> {
        Ok(vec![0; args.size as usize + 1].into())
    }

    async fn write(
        &self,
        request: &Request<'_>,
        _: NodeId,
        _: WriteArgs,
        _: WriteData<'_>,
    ) -> Result<usize, Errno> {
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_secs(2) {
            if request.is_interrupted() {
                return Err(Errno::INTR);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(0)
    }

    async fn getxattr(
        &self,
        _: &Request<'_>,
        _: NodeId,
        _: &std::ffi::CStr,
        size: u32,
    ) -> Result<XattrReply, Errno> {
        self.0.clone().pass().await;
        if size == 1 {
            common::until("the handler may continue", || self.1.load(Ordering::Relaxed));
        }
        XattrReply::fit(vec![0], size)
    }
}

fn serve() -> Served<MisbehavingFs> {
    Served::new(MisbehavingFs::default(), Config::new(Profile::Passthrough))
}

#[test]
fn a_read_longer_than_asked_for_is_cut() {
    let kernel = serve();
    let file = OpenFile { node: 2, fh: 0, open_flags: 0 };
    assert_eq!(kernel.read(&file, 0, 10).map(|bytes| bytes.len()), Ok(10));
    kernel.finish();
}

#[test]
fn a_blocking_handler_can_see_that_it_is_interrupted() {
    let kernel = serve();
    let pending = common::write(&kernel, 0);
    kernel.interrupt(pending.unique());
    assert_eq!(pending.wait(), Err(Errno::INTR));
    kernel.finish();
}

#[test]
fn a_resumed_handler_that_blocks_stalls_no_other() {
    let kernel = serve();
    let ask = |size| {
        let arg = shunt_fuse_abi::GetxattrIn { size, padding: 0 };
        kernel.submit(2, &shunt_fuse_abi::Operation::Getxattr { arg, name: c"user.x" })
    };
    let slow = ask(1);
    let quick = ask(2);
    common::until("both wait", || kernel.session().waiting_requests() == 2);
    kernel.fs().0.open();
    assert!(quick.wait_for(Duration::from_secs(8)).is_some_and(|reply| reply.is_ok()));
    kernel.fs().1.store(true, Ordering::Relaxed);
    slow.wait().unwrap();
    kernel.finish();
}
