//! Tests of data integrity: copied, spliced or zero-copied, of every size, from memory and from files.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use shunt_fuse::{NodeId, Opcode, RingBuffers, Transport};
use shunt_test_support::rings::are_on as rings_are_on;

use crate::common;
use crate::common::sys::memfd;
use crate::common::{Content, Fixture, OpenAs, Plan, Rng, TestFs, assert_same, pattern, run_with, slowness};

const SIZE: usize = 3 << 20;

/// Runs a test with splice and without, and over rings with each kind of buffers that the kernel offers.
fn every_way(plan: fn() -> Plan, body: impl Fn(&Fixture, NodeId), fs: impl Fn() -> (TestFs, NodeId)) {
    for splice in [true, false] {
        let (fs, node) = fs();
        run_with(plan().config(|config| config.splice(splice)), fs, |fixture| body(fixture, node));
    }
    if !rings_are_on() {
        return;
    }
    let mut unavailable = Vec::new();
    for buffers in [RingBuffers::ZeroCopy, RingBuffers::Pool, RingBuffers::PerEntry] {
        if unavailable.contains(&buffers) {
            continue;
        }
        let (fs, node) = fs();
        let plan = plan().config(|config| config.transport(Transport::Uring).ring_buffers(buffers));
        run_with(plan, fs, |fixture| {
            let in_use = fixture.handle.transport().buffers;
            unavailable.extend(in_use.filter(|used| *used != buffers));
            let is_direct = fixture.fs.tree.lock().get(node).unwrap().open == Some(OpenAs::Direct);
            body(fixture, node);
            let zero_copied = fixture.handle.statistics().zero_copied_bytes;
            let expected = in_use == Some(RingBuffers::ZeroCopy) && !is_direct;
            assert_eq!(zero_copied > 0, expected, "{zero_copied} bytes");
        });
    }
}

fn passthrough(body: impl Fn(&Fixture, NodeId), fs: impl Fn() -> (TestFs, NodeId)) {
    every_way(Plan::passthrough, body, fs);
}

/// Makes a file system with one file "x" with this content.
fn one(content: impl Into<Content>, open: OpenAs) -> (TestFs, NodeId) {
    let fs = TestFs::new();
    let node = fs.add_file("x", content);
    fs.set_open(node, open);
    (fs, node)
}

fn leaked(bytes: Vec<u8>) -> Content {
    Content::Static(Vec::leak(bytes))
}

fn open(fixture: &Fixture) -> File {
    File::options().read(true).write(true).open(fixture.path("x")).unwrap()
}

/// Reads ranges of every kind: tiny, around the splice threshold, around the message size, beyond the end.
fn read_all_over(fixture: &Fixture, whole: &[u8]) {
    let file = File::open(fixture.path("x")).unwrap();
    let mut rng = Rng(11);
    let limits = [1, 4096, 64 << 10, 128 << 10, 1 << 20, whole.len() as u64 + 5000];
    for n in 0..120 / slowness() as usize {
        let limit = limits[n % limits.len()];
        let length = (limit - 1 + rng.below(3)) as usize;
        let offset = rng.below(whole.len() as u64 + 9000);
        let mut bytes = vec![0; length];
        let mut done = 0;
        while done < length {
            match file.read_at(&mut bytes[done..], offset + done as u64).unwrap() {
                0 => break,
                n => done += n,
            }
        }
        let start = whole.len().min(offset as usize);
        let end = whole.len().min(start + length);
        assert_same(&bytes[..done], &whole[start..end], &format!("{length} bytes at {offset}"));
    }
}

#[test]
fn slices_are_read() {
    for open in [OpenAs::Direct, OpenAs::Cached] {
        passthrough(
            |fixture, _| read_all_over(fixture, &pattern(SIZE, 1)),
            || one(leaked(pattern(SIZE, 1)), open),
        );
    }
}

#[test]
fn owned_bytes_are_read() {
    for open in [OpenAs::Direct, OpenAs::Cached] {
        passthrough(|fixture, _| read_all_over(fixture, &pattern(SIZE, 2)), || one(pattern(SIZE, 2), open));
    }
}

#[test]
fn stretches_of_files_are_read() {
    for open in [OpenAs::Direct, OpenAs::Cached] {
        passthrough(
            |fixture, _| read_all_over(fixture, &pattern(SIZE + 777, 3)),
            || one(Content::File(memfd(&pattern(SIZE + 777, 3))), open),
        );
    }
}

#[test]
fn a_file_that_ends_early_gives_a_short_answer() {
    passthrough(
        |fixture, node| {
            let file = File::open(fixture.path("x")).unwrap();
            let mut bytes = vec![0; 1 << 20];
            assert_eq!(file.read_at(&mut bytes, 0).unwrap(), 200_000);
            assert_same(&bytes[..200_000], &pattern(200_000, 4), "the whole content");
            assert_eq!(file.read_at(&mut bytes, 150_000).unwrap(), 50_000);
            assert_eq!(file.read_at(&mut bytes, 200_000).unwrap(), 0);
            assert_eq!(file.read_at(&mut bytes, 1 << 40).unwrap(), 0);
            fixture.fs.set_content(node, Content::File(memfd(b"")));
            assert_eq!(file.read_at(&mut bytes, 0).unwrap(), 0);
        },
        || one(Content::File(memfd(&pattern(200_000, 4))), OpenAs::Direct),
    );
}

#[test]
fn an_error_of_the_file_is_the_error_of_the_read() {
    // Nothing is mapped at address 0, so reading there fails with EIO.
    let broken = || Content::File(Arc::new(File::open("/proc/self/mem").unwrap().into()));
    passthrough(
        |fixture, _| {
            let file = File::open(fixture.path("x")).unwrap();
            for length in [100, 100_000, 1 << 20] {
                let error = file.read_at(&mut vec![0; length], 0).unwrap_err();
                assert_eq!(error.raw_os_error(), Some(libc::EIO), "{length} bytes");
            }
        },
        || one(broken(), OpenAs::Direct),
    );
}

/// Writes at random, and compares with a model.
fn write_all_over(fixture: &Fixture, node: NodeId) {
    let file = open(fixture);
    let mut model = vec![0; SIZE];
    let mut rng = Rng(5);
    for n in 0..150 / slowness() as usize {
        // Sequences of large writes, which are received by splice, with small ones in between.
        let largest = [1 << 20, 1 << 20, 1 << 20, 200 << 10, 130 << 10, 4096][n % 6];
        let length = 1 + rng.below(largest) as usize;
        let offset = rng.below((SIZE - length) as u64) as usize;
        let bytes = pattern(length, n as u64 + 100);
        file.write_all_at(&bytes, offset as u64).unwrap();
        model[offset..offset + length].copy_from_slice(&bytes);
        if n % 10 == 0 {
            // Other requests then arrive through the pipe that was prepared for a large write.
            fixture.fs.log.clear();
            file.metadata().unwrap();
            let mut back = vec![0; length];
            file.read_exact_at(&mut back, offset as u64).unwrap();
            assert_same(&back, &bytes, "read back");
        }
    }
    file.sync_all().unwrap();
    assert_same(&fixture.fs.content(node), &model, "the model");
}

#[test]
fn large_writes_arrive_in_memory() {
    for open in [OpenAs::Direct, OpenAs::KeepCache] {
        passthrough(write_all_over, || one(vec![0; SIZE], open));
    }
}

#[test]
fn large_writes_arrive_in_a_file() {
    for open in [OpenAs::Direct, OpenAs::KeepCache] {
        passthrough(write_all_over, || one(Content::File(memfd(&vec![0; SIZE])), open));
    }
}

#[test]
fn large_writes_arrive_out_of_the_write_back_cache() {
    every_way(Plan::writeback, write_all_over, || one(vec![0; SIZE], OpenAs::KeepCache));
}

#[test]
fn large_writes_arrive_in_a_file_out_of_the_write_back_cache() {
    every_way(Plan::writeback, write_all_over, || {
        one(Content::File(memfd(&vec![0; SIZE])), OpenAs::KeepCache)
    });
}

#[test]
fn large_writes_from_several_threads_arrive() {
    const BYTES_PER_READER: usize = 4 << 20;
    passthrough(
        |fixture, node| {
            std::thread::scope(|scope| {
                for id in 0..4 {
                    scope.spawn(move || {
                        let file = open(fixture);
                        let bytes = pattern(BYTES_PER_READER, id as u64 + 1);
                        for chunk in 0..BYTES_PER_READER / 262_144 {
                            let at = chunk * 262_144;
                            file.write_all_at(&bytes[at..at + 262_144], (id * BYTES_PER_READER + at) as u64)
                                .unwrap();
                        }
                    });
                }
            });
            let content = fixture.fs.content(node);
            for id in 0..4 {
                assert_same(
                    &content[id * BYTES_PER_READER..][..BYTES_PER_READER],
                    &pattern(BYTES_PER_READER, id as u64 + 1),
                    "a thread's part",
                );
            }
        },
        || one(Content::File(memfd(&vec![0; 4 * BYTES_PER_READER])), OpenAs::Direct),
    );
}

#[test]
fn a_write_to_a_file_opened_to_append_is_not_spliced_and_arrives() {
    let both_flags = || {
        let file = memfd(b"");
        rustix::fs::fcntl_setfl(&*file, rustix::fs::OFlags::APPEND).unwrap();
        one(Content::File(file), OpenAs::Direct)
    };
    passthrough(
        |fixture, node| {
            let file = open(fixture);
            for n in 0..4_u64 {
                file.write_all_at(&pattern(300_000, n), n * 300_000).unwrap();
            }
            let content = fixture.fs.content(node);
            for n in 0..4_usize {
                assert_same(&content[n * 300_000..][..300_000], &pattern(300_000, n as u64), "a part");
            }
        },
        both_flags,
    );
}

#[test]
fn a_mebibyte_is_one_write() {
    let (fs, _) = one(Vec::new(), OpenAs::Direct);
    run_with(Plan::passthrough(), fs, |fixture| {
        assert_eq!(fixture.handle.negotiated().max_write, 1 << 20);
        let file = open(fixture);
        let page = common::sys::Mapping::anonymous(1 << 20);
        let (writes, result) = fixture.during(Opcode::Write, || file.write_all_at(page.bytes(), 0));
        result.unwrap();
        assert_eq!(writes, 1);
        assert!(fixture.fs.log.last(Opcode::Write).has("length: 1048576"));
    });
}

#[test]
fn a_small_max_write_is_kept() {
    let (fs, node) = one(Vec::new(), OpenAs::Direct);
    run_with(Plan::passthrough().config(|config| config.max_write(8192)), fs, |fixture| {
        let file = open(fixture);
        file.write_all_at(&pattern(100_000, 8), 0).unwrap();
        assert!(fixture.count(Opcode::Write) >= 13);
        assert_same(&fixture.fs.content(node), &pattern(100_000, 8), "written");
    });
}

/// The kernel alone would read 128 KiB ahead, with a request each.
#[test]
fn read_ahead_is_as_wide_as_configured() {
    let requests = |window: u32| {
        let mut count = 0;
        let fs = one(leaked(pattern(8 << 20, 5)), OpenAs::Cached).0;
        run_with(Plan::writeback().config(|config| config.max_readahead(window)), fs, |fixture| {
            let mut file = File::open(fixture.path("x")).unwrap();
            let mut part = vec![0; 32 << 10];
            while file.read(&mut part).unwrap() > 0 {}
            count = fixture.count(Opcode::Read);
        });
        count
    };
    let (narrow, kernels, wide) = (requests(64 << 10), requests(128 << 10), requests(1 << 20));
    assert!(narrow >= 120 && (60..120).contains(&kernels) && wide <= 16, "{narrow}, {kernels}, {wide}");
}
