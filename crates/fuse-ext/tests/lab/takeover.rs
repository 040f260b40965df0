//! Tests of files that the kernel opened when their daemon is killed: they stay open, the next daemon knows them, and its program
//! continues to count them.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::{Pid, Signal, kill_process};

use super::common::{getxattr, module_is_here, rounds};
use super::mirror::EXCLUSIVE;
use super::mirror_cli::{TestMirror, eventually, set};

/// These tests kill more daemons in ten seconds than the guardian otherwise puts up with.
fn mirror(arguments: &[&str]) -> TestMirror {
    TestMirror::new("/scratch", &[&EXCLUSIVE[..], &["--crashes", "1000"], arguments].concat())
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap()
}

fn reread(file: &mut File) -> String {
    let mut text = String::new();
    file.seek(SeekFrom::Start(0)).unwrap();
    file.read_to_string(&mut text).unwrap();
    text
}

fn daemon(mirror: &TestMirror) -> i32 {
    mirror.stat()["pid"].as_i64().unwrap() as i32
}

fn signal(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

/// Waits for a daemon after this number of takeovers. On a busy machine the guardian gives up a daemon that is not ready in time, and
/// starts another one.
fn taken_over(mirror: &TestMirror, before: u64) -> bool {
    eventually(|| {
        mirror.try_stat().and_then(|stat| stat["takeovers"].as_u64()).is_some_and(|number| number > before)
    })
}

/// Kills the daemon, and waits for the next one.
fn kill(mirror: &TestMirror) {
    let (pid, takeovers) = (daemon(mirror), mirror.stat()["takeovers"].as_u64().unwrap());
    signal(pid, Signal::KILL);
    assert!(taken_over(mirror, takeovers), "{}", mirror.log());
    assert_eq!(mirror.stat()["extension"]["attached"], true, "{}", mirror.log());
}

/// Returns the guardian, which is a child of the first daemon.
fn guardian(daemon: i32) -> i32 {
    let parent = |pid: i32| -> Option<i32> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
    };
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let mut pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.find(|pid| parent(*pid) == Some(daemon)).expect("the daemon has a guardian")
}

fn is_gone(pid: i32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| stat.contains(") Z "))
        || !Path::new(&format!("/proc/{pid}")).exists()
}

#[test]
fn while_no_daemon_runs_the_kernel_answers() {
    if !module_is_here() {
        return;
    }
    let mirror = mirror(&["--no-kernel-cache"]);
    let path = mirror.path("file");
    fs::write(mirror.source("file"), "text").unwrap();
    set(&mirror.source("file"), "user.x", "value");
    let look = || {
        assert_eq!(fs::metadata(&path).unwrap().len(), 4);
        assert_eq!(getxattr(&path, "user.x").unwrap(), b"value");
        let mut file = File::open(&path).unwrap();
        assert_eq!(reread(&mut file), "text");
        file
    };
    let operations = ["lookup", "getattr", "getxattr", "open", "flush", "release"];
    assert!(eventually(|| mirror.counts(&operations, || drop(look())).0 == 0));
    let opened_before = look();
    let pid = daemon(&mirror);
    let guardian = guardian(pid);
    signal(guardian, Signal::STOP);
    signal(pid, Signal::KILL);
    assert!(eventually(|| is_gone(pid)));
    let mut files: Vec<File> = (0..10).map(|_| look()).collect();
    files.truncate(5);
    signal(guardian, Signal::CONT);
    assert!(taken_over(&mirror, 0), "{}", mirror.log());

    // The daemon opens the file with the backing file of these opens.
    let writer = File::options().write(true).open(&path).unwrap();
    writer.write_all_at(b"T", 0).unwrap();
    files.push(opened_before);
    files.iter_mut().for_each(|file| assert_eq!(reread(file), "Text"));
    assert_eq!(mirror.stat()["extension"]["files"], 1);
    fs::remove_file(&path).unwrap();
    drop(writer);
    // Released only after the last of them.
    while let Some(mut file) = files.pop() {
        assert_eq!(reread(&mut file), "Text");
        assert_eq!(mirror.stat()["extension"]["files"], 1);
    }
    assert!(eventually(|| mirror.stat()["extension"]["files"] == 0), "{}", mirror.stat());
}

#[test]
fn a_removed_file_stays_readable_and_is_freed_after_its_last_close() {
    if !module_is_here() {
        return;
    }
    let mirror = mirror(&[]);
    let path = mirror.path("file");
    fs::write(&path, "text").unwrap();
    drop(File::open(&path).unwrap());
    let mut file = File::open(&path).unwrap();
    let inode = fs::metadata(mirror.source("file")).unwrap().ino();
    fs::remove_file(&path).unwrap();
    for _ in 0..rounds(2) {
        kill(&mirror);
        assert_eq!(reread(&mut file), "text");
        // Needs a handle, which the daemon opens for the time of the call.
        file.sync_all().unwrap();
        assert_eq!(file.metadata().unwrap().nlink(), 0);
    }
    drop(file);
    assert!(eventually(|| mirror.stat()["extension"]["files"] == 0), "{}", mirror.stat());
    assert!(eventually(|| {
        fs::write(mirror.source("again"), "").unwrap();
        let reused = fs::metadata(mirror.source("again")).unwrap().ino() == inode;
        fs::remove_file(mirror.source("again")).unwrap();
        reused
    }));
}

/// Opens, reads, writes and closes while daemons are killed or upgraded: no call fails, no content is wrong, and at the end
/// nothing is left registered.
#[test]
fn opens_go_on_while_daemons_are_killed() {
    if !module_is_here() {
        return;
    }
    let mirror = mirror(&[]);
    let paths: Vec<_> = (0..16).map(|number| mirror.path(&format!("file{number}"))).collect();
    paths.iter().for_each(|path| fs::write(path, "text").unwrap());
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for worker in 0..2 {
            let (paths, done) = (&paths, &done);
            scope.spawn(move || {
                let mut held = Vec::new();
                for round in (worker..).step_by(2) {
                    let path = &paths[round % paths.len()];
                    assert_eq!(read(path), "text");
                    held.push(File::open(path).unwrap());
                    if round % 7 == worker {
                        let writer = File::options().write(true).open(path).unwrap();
                        writer.write_all_at(b"t", 0).unwrap();
                    }
                    if held.len() > 20 {
                        held.drain(..10).for_each(|mut file| assert_eq!(reread(&mut file), "text"));
                    }
                    if done.load(Ordering::Relaxed) {
                        break;
                    }
                }
            });
        }
        for round in 0..rounds(4) {
            match round % 2 {
                0 => kill(&mirror),
                _ => {
                    let upgraded = Command::new("shunt").arg("upgrade").arg(mirror.path("")).status();
                    assert!(upgraded.unwrap().success(), "{}", mirror.log());
                }
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    // Each daemon's program learns the files anew.
    let open_all = || paths.iter().for_each(|path| drop(File::open(path).unwrap()));
    open_all();
    let (asked, answered) = mirror.counts(&["open"], open_all);
    assert!(asked == 0 && answered == 16, "{asked} {answered}");
    paths.iter().for_each(|path| assert_eq!(read(path), "text"));
    paths.iter().for_each(|path| fs::remove_file(path).unwrap());
    assert!(eventually(|| mirror.stat()["extension"]["files"] == 0), "{}", mirror.stat());
    assert_eq!(mirror.stat()["errors"]["open"], serde_json::Value::Null);
}

/// The next daemon finds no program to load: the earlier one, whose tables nobody would invalidate, is detached, and the files that it
/// opened are known all the same.
#[test]
fn without_another_program_the_earlier_one_ends() {
    if !module_is_here() {
        return;
    }
    let program = tempfile::NamedTempFile::new_in("/scratch").unwrap();
    fs::write(program.path(), shunt_fuse_ext::builtin::PROGRAM.unwrap()).unwrap();
    let own = ["--cache", "exclusive", "--no-kernel-cache", "--extension", program.path().to_str().unwrap()];
    let mirror = TestMirror::new("/scratch", &own);
    let path = mirror.path("file");
    fs::write(&path, "text").unwrap();
    drop(File::open(&path).unwrap());
    let mut file = File::open(&path).unwrap();
    assert_eq!(mirror.stat()["extension"]["files"], 1);
    drop(program);
    signal(daemon(&mirror), Signal::KILL);
    assert!(taken_over(&mirror, 0), "{}", mirror.log());
    assert_eq!(mirror.stat()["extension"]["attached"], false);
    assert!(mirror.log().contains("no extension in the kernel: cannot read"), "{}", mirror.log());
    // Nothing is answered in the kernel.
    let (asked, answered) = mirror.counts(&["lookup"], || assert!(path.exists()));
    assert!(asked > 0 && answered == 0, "{asked} {answered}");
    // With another backing file the kernel would refuse this open.
    File::options().write(true).open(&path).unwrap().write_all_at(b"T", 0).unwrap();
    assert_eq!(reread(&mut file), "Text");
    fs::remove_file(&path).unwrap();
    assert_eq!(reread(&mut file), "Text");
    drop(file);
    assert!(eventually(|| mirror.stat()["extension"]["files"] == 0), "{}", mirror.stat());
}
