//! Resource limits of the daemon: no resource grows with the number of names.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use shunt_test_support::cmd::within;
use shunt_test_support::{User, needs_mount, run_for};
use shunt_tests::sys::kernel_has;
use shunt_tests::{Fixture, Plan, fixture, mounts};

fn make(base: &Path, many: usize) {
    for n in 0..many {
        if n % 500 == 0 {
            fs::create_dir(base.join(format!("d{}", n / 500))).unwrap();
        }
        File::create(base.join(format!("d{}/f{n}", n / 500))).unwrap_or_else(|e| panic!("file {n}: {e}"));
    }
}

fn memory_kib(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Twenty times more files than the daemon may have open.
fn few_open_files(plan: Plan) {
    fixture::perform(plan.open_files(1024).patience(120), |s| {
        make(s.mnt(), 20_000);
        let listed =
            run_for(60, Command::new("find").arg(s.mnt()).args(["-type", "f", "-printf", "%i %s\n"])).ok();
        assert_eq!(listed.lines().count(), 20_000);
        for n in (0..20_000).step_by(97) {
            fs::write(s.path(format!("d{}/f{n}", n / 500)), b"x").unwrap();
            assert_eq!(fs::metadata(s.path(format!("d{}/f{n}", n / 500))).unwrap().len(), 1);
        }
        if s.mounted() {
            let fds = mounts::open_files(s.pid());
            assert!(fds < 500, "the daemon holds {fds} files open while the kernel knows 20,000 inodes");
        }
    });
}

#[test]
fn twenty_thousand_files_with_1024_descriptors_on_tmpfs() {
    few_open_files(Plan::tmpfs());
}

#[test]
fn twenty_thousand_files_with_1024_descriptors_on_ext4() {
    few_open_files(Plan::ext4());
}

#[test]
fn a_user_who_opens_all_he_can_stops_nobody() {
    needs_mount!();
    let Some(s) = Plan::tmpfs().open_files(1024).set_or_skip() else { return };
    fs::write(s.path("file"), b"x").unwrap();
    let open_all = |uid: u32| {
        User::new(uid).run(|| {
            let mut files = Vec::new();
            loop {
                match File::open(s.path("file")) {
                    Ok(file) => files.push(file),
                    Err(error) => {
                        assert_eq!(error.raw_os_error(), Some(libc::ENFILE), "{} files", files.len());
                        return files;
                    }
                }
                assert!(files.len() < 1024, "no limit");
            }
        })
    };
    let greedy = open_all(2000);
    let others: Vec<_> = (2001..2020).map(open_all).collect();
    assert!(
        greedy.len() >= 100 && others[0].len() >= greedy.len() / 3,
        "{}, {}",
        greedy.len(),
        others[0].len()
    );
    // Files opened by users leave a reserve for root.
    let of_root: Vec<_> = (0..8).map(|_| File::open(s.path("file")).unwrap()).collect();
    fs::read_dir(s.mnt()).unwrap().for_each(|entry| drop(entry.unwrap()));
    drop((of_root, others, greedy));
    let again = || User::new(2000).run(|| File::open(s.path("file")).is_ok());
    assert!(within(Duration::from_secs(5), again), "what was closed counts no more");
}

/// The kernel keeps every inode it has seen unless the limit makes it evict some. Before Linux 6.18 that cannot be requested,
/// and everything else must work as usual.
#[test]
fn max_inodes_is_kept() {
    needs_mount!();
    fixture::perform(
        Plan::tmpfs().args(&["--max-inodes", "5000", "--cache", "exclusive"]).patience(120),
        |s| {
            make(s.src(), 50_000);
            let walked = run_for(60, Command::new("find").arg(s.mnt()).args(["-printf", "%i %s\n"])).ok();
            assert_eq!(walked.lines().count(), 50_000 + 100 + 1);
            // The kernel delays FORGETs; a lookup of the root lets the daemon make progress.
            let count = || inodes(s);
            let near = !kernel_has(6, 18) || within(Duration::from_secs(5), || count() <= 7500);
            assert!(near, "{} inodes after a walk of 50,000, with a limit of 5,000: {}", count(), s.stat());
            // Evicted inodes are found again.
            assert!(s.path("d3/f1600").exists());
        },
    );
}

/// Returns the number of inodes in the daemon, under any of the keys that `stat` uses.
fn inodes(s: &Fixture) -> u64 {
    fn find(v: &serde_json::Value) -> Option<u64> {
        let map = v.as_object()?;
        let wanted = ["inodes", "nodes", "live_nodes", "nodes_live"];
        wanted.iter().find_map(|k| map.get(*k)?.as_u64()).or_else(|| map.values().find_map(find))
    }
    let stat = s.stat();
    find(&stat).unwrap_or_else(|| panic!("stat --json says nowhere how many inodes there are: {stat}"))
}

#[test]
fn forgotten_inodes_give_their_memory_back() {
    needs_mount!();
    shunt_test_support::memory::keeping(|| {
        fixture::perform(Plan::tmpfs().args(&["--cache", "exclusive"]).patience(120), |s| {
            make(s.src(), 20_000);
            let before = memory_kib(s.pid());
            run_for(60, Command::new("find").arg(s.mnt()).args(["-size", "+1"])).ok();
            let walked = inodes(s);
            assert!(walked >= 20_000, "{walked}");
            let each = (memory_kib(s.pid()) - before) * 1024 / walked;
            assert!(each < 1024, "{each} bytes per inode");
            fs::remove_dir_all(s.mnt()).unwrap_err();
            assert!(
                within(Duration::from_secs(5), || inodes(s) < 100),
                "{} inodes after everything was removed",
                inodes(s)
            );
        });
    });
}

/// One directory listing of many names needs no memory of its size in one piece, and many listings leak nothing.
#[test]
fn repeated_walks_do_not_grow() {
    needs_mount!();
    fixture::perform(Plan::tmpfs().args(&["--cache", "none"]).patience(240), |s| {
        make(s.src(), 5000);
        let walk = || run_for(60, Command::new("find").arg(s.mnt()).args(["-size", "+1"])).ok();
        // Memory grows with the number of threads, and threads are added while others wait: so poll until it is stable. A leak
        // never stabilises.
        let state = || (memory_kib(s.pid()), mounts::open_files(s.pid()));
        let mut seen = vec![state()];
        let stays = (0..8).any(|_| {
            (0..10).for_each(|_| drop(walk()));
            let ((memory, fds), (memory_now, fds_now)) = (seen[seen.len() - 1], state());
            seen.push((memory_now, fds_now));
            memory_now < memory + 256 && fds_now <= fds
        });
        assert!(stays, "memory in KiB and open files go on growing: {seen:?}");
    });
}
