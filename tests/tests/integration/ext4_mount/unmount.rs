//! End of mounts: by umount(8), and by a signal during writes.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::chown;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use shunt_test_support::cmd::{one_line, within};
use shunt_test_support::{needs_mount, needs_tools, requirement, run, run_for, sh};
use shunt_tests::{Image, Plan, binary, mounts, unprivileged};

/// Twenty times: mount, write without a sync, umount(8), and immediately e2fsck. mount(8) and umount(8) find their helpers in
/// their usual directory, in a mount namespace of the test.
const ROUNDS: &str = r#"
mount --make-rprivate /
sbin=$(realpath /sbin)
mkdir real helpers mnt
mount --bind "$sbin" real
for program in real/*; do ln -s "$PWD/$program" helpers/; done
"$SHUNT" install-helpers --dir helpers >/dev/null
mount --bind helpers "$sbin"
i=0
while [ $i -lt 20 ]; do
    mount -t shunt.ext4 image mnt
    mkdir mnt/d$i; head -c 1500000 /dev/urandom > mnt/d$i/a; cp mnt/d$i/a mnt/b; rm -f mnt/c; mv mnt/b mnt/c
    umount mnt
    real/e2fsck -fn image || exit 1
    i=$((i + 1))
done
"#;

#[test]
fn umount_waits_for_the_last_commit() {
    needs_mount!();
    requirement!(rustix::process::geteuid().is_root(), "needs root");
    let image = Image::make(&[], 64).unwrap();
    let mut rounds = Command::new("unshare");
    rounds.args(["-m", "sh", "-euc", ROUNDS]).current_dir(image.aside()).env("SHUNT", binary::shunt());
    run_for(120, &mut rounds).ok();
    image.check();
}

/// Files that the writers synced, and whether the writers are to stop.
#[derive(Default)]
struct WriterState {
    synced: Mutex<Vec<(String, u8)>>,
    over: AtomicBool,
}

/// Writes and syncs files, holding one open all the time, until a call fails. It works below an open directory, because once
/// the mount is detached, its path leads to the directory beneath.
fn write_on(at: &std::path::Path, writer: u8, story: &WriterState) {
    let Ok(top) = File::open(at) else { return };
    let at = std::path::PathBuf::from(format!("/proc/self/fd/{}", top.as_raw_fd()));
    let Ok(mut held) = File::create(at.join(format!("held{writer}"))) else { return };
    for round in 0_u32.. {
        let name = format!("file{writer}-{round}");
        let mut write = || -> std::io::Result<()> {
            held.write_all(&[writer; 100_000])?;
            let mut file = File::create(at.join(&name))?;
            file.write_all(&[writer ^ round as u8; 30_000])?;
            file.sync_all()?;
            // Keeps the image from filling up.
            if round > 40 {
                fs::remove_file(at.join(format!("file{writer}-{}", round - 40)))?;
                held.set_len(0)?;
            }
            Ok(())
        };
        if write().is_err() || story.over.load(Ordering::SeqCst) {
            return;
        }
        story.synced.lock().unwrap().push((name, writer ^ round as u8));
    }
}

/// SIGTERM during four writers: the daemon ends within ten seconds, the image is clean, and synced data is present.
#[test]
fn a_signal_ends_it_while_all_write() {
    needs_mount!();
    let image = Image::make(&[], 128).unwrap();
    for _ in 0..3 {
        let mount = image.by_shunt(&[]);
        let (pid, story) = (mount.pid(), WriterState::default());
        thread::scope(|scope| {
            for writer in 0..4 {
                let (story, at) = (&story, mount.at());
                scope.spawn(move || write_on(at, writer, story));
            }
            let at_work = within(Duration::from_secs(30), || story.synced.lock().unwrap().len() > 20);
            let begun = Instant::now();
            mounts::signal(pid, Signal::TERM);
            let gone = within(Duration::from_secs(10), || !mounts::alive(pid));
            story.over.store(true, Ordering::SeqCst);
            assert!(at_work, "little was written");
            assert!(gone, "still there after {:?}", begun.elapsed());
        });
        assert_eq!(mounts::count(mount.at()), 0);
        drop(mount);
        image.check();
        let mount = image.by_shunt(&[]);
        let synced = story.synced.into_inner().unwrap();
        for writer in 0..4 {
            let prefix = format!("file{writer}-");
            // Older ones were removed by the writer.
            for (name, byte) in synced.iter().rev().filter(|(name, _)| name.starts_with(&prefix)).take(35) {
                let content =
                    fs::read(mount.at().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
                assert!(content == vec![*byte; 30_000], "{name}");
            }
        }
        sh(mount.at(), "rm -f file* held*").ok();
        mount.umount().ok();
    }
    image.check();
}

/// The owner of an image needs no privileges; a user who may not read it gets one line.
#[test]
fn the_owner_mounts_an_image() {
    needs_mount!();
    requirement!(rustix::process::geteuid().is_root(), "needs root");
    needs_tools!("fusermount3");
    let Some(s) = Plan::tmpfs().unmounted().set_or_skip() else { return };
    sh(
        s.aside(),
        "for i in image other; do truncate -s 32M $i; mkfs.ext4 -q -F -E root_owner=65534:65534 $i; done",
    )
    .ok();
    sh(s.aside(), "chmod 600 image other; chmod 755 .").ok();
    let (image, other) = (s.aside().join("image"), s.aside().join("other"));
    chown(&image, Some(65534), Some(65534)).unwrap();
    unprivileged::perform(&s, |shunt| {
        for round in 0..5 {
            run_for(20, shunt(&["ext4", "--daemon"]).arg(&image).arg(s.mnt())).ok();
            let work = format!(
                "mkdir d{round}; head -c 1000000 /dev/urandom > d{round}/f; mv d{round}/f g; chmod 4711 g; rm -rf old; mv d{round} old"
            );
            sh(s.mnt(), &work).ok();
            run(shunt(&["umount"]).arg(s.mnt())).ok();
            // A user's PATH may not contain it.
            run_for(60, Command::new("/sbin/e2fsck").arg("-fn").arg(&image)).ok();
        }
        let refused = run_for(20, shunt(&["ext4", "--daemon"]).arg(&other).arg(s.mnt()));
        assert_eq!(refused.status.and_then(|status| status.code()), Some(5), "{refused:?}");
        one_line(&refused.err, "permission denied");
        assert!(refused.err.contains("other"), "{}", refused.err);
        assert_eq!(mounts::count(s.mnt()), 0);
    });
}
