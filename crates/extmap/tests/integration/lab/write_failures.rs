//! Failures: the daemon is killed or stopped, or space runs out.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};

use super::connection_abort::eventually;
use super::disk::{BLOCK, Mount, module_is_here, run};
use super::ext4::{image as filled, noise};
use super::writes::{check, found, image, is_free, mount, unmount};

/// Starts a daemon in the foreground.
fn start(image: &Path) -> Child {
    fs::create_dir_all("/tmp/shunt").unwrap();
    let daemon =
        Command::new("shunt").args(["ext4", "--data", "extmap"]).arg(image).arg("/tmp/shunt").spawn();
    assert!(eventually(|| Path::new("/tmp/shunt/lost+found").exists()));
    daemon.unwrap()
}

fn signal(daemon: &Child, signal: Signal) {
    kill_process(Pid::from_child(daemon), signal).unwrap();
}

/// Bytes that another file had on the device.
const SECRET: u8 = 0xee;

#[test]
fn killed_daemon_loses_only_unsynced_data() {
    if !module_is_here() {
        return;
    }
    // Nearly all free blocks hold data of a deleted file.
    let image = filled("killed", 64, &[], |root| {
        fs::write(root.join("secret"), vec![SECRET; 48 << 20]).unwrap();
        rustix::fs::sync();
        fs::remove_file(root.join("secret")).unwrap();
    });
    for round in 0..3u64 {
        let mut daemon = start(&image);
        let at = |name: &str| Path::new("/tmp/shunt").join(format!("{name}{round}"));
        let synced = noise(round, 1_500_001);
        let file = File::create(at("synced")).unwrap();
        file.write_all_at(&synced, 0).unwrap();
        file.sync_all().unwrap();
        // Past the end, beside holes, and over synced data.
        let unsynced = File::create(at("unsynced")).unwrap();
        unsynced.write_all_at(&vec![1; 3_000_000], 10_000).unwrap();
        unsynced.write_all_at(&vec![1; 3_000_000], 5_000_000).unwrap();
        if round == 1 {
            // The names are durable, the content is not.
            File::open("/tmp/shunt").unwrap().sync_all().unwrap();
        }
        if round == 2 {
            // The kernel writes pages back without notifying the daemon.
            rustix::fs::sync();
        }
        file.write_all_at(&[2; 100_000], 700_000).unwrap();
        let open = fs::read_dir("/tmp/shunt").unwrap().count();
        assert!(open > 2);
        daemon.kill().unwrap();
        daemon.wait().unwrap();
        assert!(
            eventually(|| unsynced.write_at(&[3; 5000], 0).is_err()),
            "writes still succeed after the end of the daemon"
        );
        drop((file, unsynced));
        assert!(eventually(|| is_free(&image)), "the image stays locked");
        assert!(eventually(|| !Path::new("/tmp/shunt/lost+found").exists()));
        // Replays the journal.
        let replayed = Command::new("e2fsck").args(["-fp"]).arg(&image).output().unwrap();
        assert!(replayed.status.code() <= Some(1), "{replayed:?}");
        check(&image);
        let now = found(&image, &format!("synced{round}"));
        assert_eq!(now.len(), synced.len());
        let outside = |range: std::ops::Range<usize>| now[range.clone()] == synced[range];
        assert!(outside(0..700_000) && outside(800_000..synced.len()), "round {round}: synced data was lost");
        assert!(
            now[700_000..800_000].iter().zip(&synced[700_000..]).all(|(now, old)| *now == 2 || now == old)
        );
        // Its size may have been recorded or not.
        let kernel = Mount::kernel(&image, "/tmp/kernel", "ro,loop");
        if let Ok(now) = fs::read(kernel.path(&format!("unsynced{round}"))) {
            let strange = now.iter().position(|byte| *byte > 1);
            assert_eq!(strange, None, "round {round}: bytes of another file, of {}", now.len());
        }
    }
    fs::remove_file(image).unwrap();
}

#[test]
fn sync_does_not_wait_for_a_stopped_daemon() {
    if !module_is_here() {
        return;
    }
    let image = image("stopped", 96, &[]);
    let mut daemon = start(&image);
    let content = noise(7, 26 << 20);
    let mut file = File::create("/tmp/shunt/file").unwrap();
    file.write_all(&content).unwrap();
    signal(&daemon, Signal::STOP);
    let (done, waits) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        rustix::fs::sync();
        done.send(()).unwrap();
    });
    let returned = waits.recv_timeout(std::time::Duration::from_secs(120));
    signal(&daemon, Signal::CONT);
    assert!(returned.is_ok(), "sync does not wait for the daemon");
    file.sync_all().unwrap();
    drop(file);
    run("/bin/umount", &["/tmp/shunt"]);
    daemon.wait().unwrap();
    check(&image);
    assert!(found(&image, "file") == content);
    fs::remove_file(image).unwrap();
}

#[test]
fn enospc_keeps_written_data() {
    if !module_is_here() {
        return;
    }
    let image = image("full", 24, &[]);
    let shunt = mount(&image);
    let content = noise(3, 40 << 20);
    let file = File::create(shunt.path("file")).unwrap();
    let mut written = 0;
    let error = loop {
        match file.write_at(&content[written..written + 100_000], written as u64) {
            Ok(count) => written += count,
            Err(error) => break error,
        }
    };
    assert_eq!(Errno::from_io_error(&error), Some(Errno::NOSPC));
    assert!(written > 10 << 20, "{written}");
    file.sync_all().unwrap();
    assert!(fs::read(shunt.path("file")).unwrap() == content[..written]);
    // Truncated ranges can be written again.
    file.set_len(BLOCK).unwrap();
    file.sync_all().unwrap();
    file.write_all_at(&content[BLOCK as usize..8 << 20], BLOCK).unwrap();
    drop(file);
    unmount(shunt, &image);
    assert!(found(&image, "file") == content[..8 << 20]);
    fs::remove_file(image).unwrap();
}

#[test]
fn fsx_passes() {
    if !module_is_here() || !Path::new("/lab/fsx").exists() {
        return;
    }
    // Without posix_fadvise, for which the kernel reads ahead without any reader.
    const CONFIG: &str = "flen = 1048576\n[weights]\nclose_open = 1\ninvalidate = 1\nread = 10\nwrite = 10\nmapread = 5\n\
        mapwrite = 5\ntruncate = 3\nfsync = 0.2\nfdatasync = 0.2\nposix_fallocate = 1\npunch_hole = 1\nsendfile = 2\n\
        copy_file_range = 2\n";
    fs::write("/tmp/fsx.toml", CONFIG).unwrap();
    let image = image("fsx", 64, &[]);
    let shunt = mount(&image);
    for seed in ["1", "2", "3"] {
        let name = shunt.path(&format!("file{seed}"));
        run(
            "/lab/fsx",
            &["-S", seed, "-N", "1000", "-f", "/tmp/fsx.toml", "-P", "/tmp", name.to_str().unwrap()],
        );
    }
    unmount(shunt, &image);
    fs::remove_file(image).unwrap();
}
