//! Measures the latency of calls: on tmpfs, answered by the daemon, answered in the kernel.

use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, Instant};

use super::common::*;

const CALLS: usize = 1000;
const WARM_UP: usize = 20;

/// Returns the median latency, after a warm-up.
fn median(calls: usize, call: impl Fn()) -> Duration {
    (0..WARM_UP).for_each(|_| call());
    let mut times: Vec<Duration> = (0..calls)
        .map(|_| {
            let begun = Instant::now();
            call();
            begun.elapsed()
        })
        .collect();
    times.sort();
    times[calls / 2]
}

/// Measures stat, fstat, getxattr and fgetxattr.
fn four(calls: usize, path: &Path) -> [Duration; 4] {
    let file = File::open(path).unwrap();
    let fgetxattr = || {
        rustix::fs::fgetxattr(&file, "security.x", &mut [0u8; 64]).unwrap();
    };
    [
        median(calls, || {
            fs::metadata(path).unwrap();
        }),
        median(calls, || {
            rustix::fs::fstat(&file).unwrap();
        }),
        median(calls, || {
            rustix::fs::getxattr(path, "security.x", &mut [0u8; 64]).unwrap();
        }),
        median(calls, fgetxattr),
    ]
}

#[test]
fn at_most_four_times_tmpfs() {
    if !module_is_here() {
        return;
    }
    let small = CountingFs::new();
    let node = small.add(1, "file0", 0o100_644);
    small.set_xattr(node, "security.x", b"value");
    let mount = Mount::asking(small);
    let path = mount.path("file0");

    let plain = Path::new("/dev/shm/speed");
    File::create(plain).unwrap();
    rustix::fs::setxattr(plain, "security.x", b"value", rustix::fs::XattrFlags::empty()).unwrap();
    let tmpfs = four(CALLS, plain);
    fs::remove_file(plain).unwrap();

    let mut extension = [Duration::ZERO; 4];
    let file = File::open(&path).unwrap();
    drop(file);
    fs::metadata(&path).unwrap();
    getxattr(&path, "security.x").unwrap();
    let asked = mount.requests(|| extension = four(CALLS, &path));
    mount.fs.detach();
    let daemon = four(CALLS / 10, &path);

    println!("\ncall        tmpfs    daemon   extension (us, p50)   extension/tmpfs");
    let names = ["stat", "fstat", "getxattr", "fgetxattr"];
    let us = |time: Duration| time.as_secs_f64() * 1e6;
    for (n, name) in names.iter().enumerate() {
        let ratio = us(extension[n]) / us(tmpfs[n]);
        println!(
            "{name:10} {:7.2} {:9.1} {:11.2} {ratio:21.2}",
            us(tmpfs[n]),
            us(daemon[n]),
            us(extension[n])
        );
        assert!(ratio <= 4.0, "{name}: {ratio:.2} times tmpfs");
    }
    // One open, and one more request for each entry that it invalidates.
    println!("requests to the daemon: {asked} in {} calls", 4 * (CALLS + WARM_UP));
    assert!(asked <= 5, "{asked}");
}
