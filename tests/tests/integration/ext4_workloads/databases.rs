//! Power cuts under databases: everything that they acknowledged as committed is present, and their consistency checks pass.
//!
//! A database works on an image on a disk that tracks flushes ([`power_cut_disk`](shunt_tests::power_cut_disk)). At random moments the test takes
//! an image of a possible state of the disk after a power cut, mounts it with the kernel or with `shunt`, and checks the
//! database.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use shunt_test_support::cmd::within;
use shunt_tests::image::Mount;
use shunt_tests::power_cut_disk::{LostWrites, PoweredDisk};
use shunt_tests::{Image, Rng, mounts};

/// Interface of a database for these tests. Each of its clients commits one transaction after the other, numbered from 1.
pub trait Database: Sync {
    /// Creates an empty database on the mount.
    fn make(&self, at: &Path);

    /// Returns the number of clients.
    fn clients(&self) -> usize;

    /// Runs a client until it is stopped, or until its database is unreachable. Calls `done` with the number of each transaction
    /// acknowledged as committed.
    fn work(&self, at: &Path, client: usize, stop: &AtomicBool, done: &dyn Fn(u64));

    /// Checks everything, and returns for each client the number of its last transaction: all earlier ones must be present, and
    /// no other. The database must be able to continue.
    fn check(&self, at: &Path) -> Vec<u64>;

    /// Stops using the mount, in any state.
    fn leave(&self, at: &Path);
}

/// Calls [`Database::leave`] on drop: a database that stays would keep the mount busy.
struct LeaveOnDrop<'a, B: Database>(&'a B, &'a Path);

impl<B: Database> Drop for LeaveOnDrop<'_, B> {
    fn drop(&mut self) {
        self.0.leave(self.1);
    }
}

/// Duration of the test, and the image that it uses.
pub struct TestRun {
    /// Duration of the power cuts.
    pub time: Duration,
    pub mkfs: &'static [&'static str],
    pub mebibytes: u64,
    pub seed: u64,
}

/// Cuts the power under a database for a while, and ends with a `kill -9` of the daemon. Returns the number of cuts.
pub fn survives(base: &impl Database, course: &TestRun) -> u32 {
    let made = Image::make(course.mkfs, course.mebibytes).unwrap();
    let first = made.by_shunt(&[]);
    {
        let _leaving = LeaveOnDrop(base, first.at());
        base.make(first.at());
    }
    drop(first);
    made.check();
    // Checked before any loss: a refusal of the image after a cut is a failure.
    let kernel = made.by_kernel("ro").map(drop);
    if let Err(why) = &kernel {
        shunt_test_support::skip::kernel_cannot(why);
    }
    let kernel = kernel.is_ok();
    let disk = PoweredDisk::new(&made.path());
    let image = Image::of(disk.path());
    let mount = image.by_shunt(&["--takeover", "off"]);
    let leaving = LeaveOnDrop(base, mount.at());
    let stop = AtomicBool::new(false);
    let done: Vec<AtomicU64> = (0..base.clients()).map(|_| AtomicU64::new(0)).collect();
    let acknowledged = || done.iter().map(|count| count.load(Ordering::SeqCst)).collect::<Vec<_>>();
    let mut rng = Rng::new(course.seed);
    let (cuts, by_kernel) = std::thread::scope(|scope| {
        // Ends the clients after any failure.
        let _stop = StopAtEnd(&stop);
        for (client, count) in done.iter().enumerate() {
            let (at, stop) = (mount.at(), &stop);
            scope.spawn(move || {
                base.work(at, client, stop, &|number| count.store(number, Ordering::SeqCst));
            });
        }
        let (end, mut cuts, mut by_kernel) = (Instant::now() + course.time, 0, 0);
        let mut before = vec![0; done.len()];
        loop {
            std::thread::sleep(Duration::from_millis(20 + rng.below(400) as u64));
            let now = acknowledged();
            let lost =
                [LostWrites::All, LostWrites::Some, LostWrites::Some, LostWrites::Nothing][rng.below(4)];
            let cut = disk.cut(lost, &mut rng);
            let kernel = kernel && rng.below(2) == 0;
            let by = if kernel { "the kernel" } else { "shunt" };
            let what = format!("cut {cuts} of {}, {lost:?} lost, replayed by {by}", course.seed);
            holds(base, &cut, &now, kernel, &what);
            cuts += 1;
            by_kernel += u32::from(kernel);
            let moved = now.iter().zip(&before).all(|(now, before)| now > before);
            if Instant::now() > end && (moved || cuts > 3) {
                assert!(moved || now.iter().all(|count| *count > 3), "the clients do nothing: {now:?}");
                break;
            }
            before = now;
        }
        // Killed, with all its writes on the disk. The guardian aborts pending calls: even a thread of the daemon may wait in
        // the kernel for a reply of its own mount.
        let now = acknowledged();
        assert!(mounts::signal(mount.pid(), Signal::KILL));
        stop.store(true, Ordering::SeqCst);
        assert!(within(Duration::from_secs(60), || mounts::count(mount.at()) == 0), "it stays mounted");
        let cut = disk.cut(LostWrites::Nothing, &mut rng);
        holds(base, &cut, &now, false, "killed");
        (cuts, by_kernel)
    });
    drop(leaving);
    drop(mount);
    println!(
        "{cuts} power cuts, {by_kernel} of them replayed by the kernel, under {:?} transactions",
        acknowledged()
    );
    cuts
}

/// Checks that the image contains all transactions committed before the cut.
fn holds(base: &impl Database, cut: &Image, committed: &[u64], by_kernel: bool, what: &str) {
    let check = |mount: Mount| {
        let there = {
            let _leaving = LeaveOnDrop(base, mount.at());
            base.check(mount.at())
        };
        let all = committed.iter().zip(&there).all(|(acknowledged, there)| there >= acknowledged);
        assert!(all && there.len() == committed.len(), "{what}: {there:?} there, {committed:?} committed");
    };
    if by_kernel {
        check(cut.by_kernel("rw").unwrap());
    } else {
        check(cut.by_shunt(&[]));
    }
    cut.check();
}

struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Duration of the long tests: `SHUNT_SOAK_SECONDS`, by default two minutes.
pub fn long() -> Duration {
    let seconds = std::env::var("SHUNT_SOAK_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
    Duration::from_secs(seconds.unwrap_or(120))
}
