//! `shunt ext4 --partition`, `--fd`, and image locks: partitioned disks, open descriptors, and images in use.

use std::fs::{self, File};
use std::os::fd::AsRawFd as _;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;
use shunt_test_support::cmd::one_line;
use shunt_test_support::{Loop, needs_mount, needs_tools, patiently, run, run_for, sh};
use shunt_tests::{Image, binary};
use tempfile::TempDir;

/// A disk with two file systems, in the partitions 2 and 5 of an MBR or 2 and 3 of a GPT.
struct Disk(TempDir);

impl Disk {
    fn new(script: &str, second: u64) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let line = format!(
            "truncate -s 64M disk; printf '{script}' | sfdisk -q disk >/dev/null
             for name in first second; do
                 mkdir $name; echo $name > $name/file; mkfs.ext4 -q -F -L fs-$name -d $name $name.img 8M >/dev/null
             done
             dd if=first.img of=disk bs=1M seek=2 conv=notrunc status=none
             dd if=second.img of=disk bs=512 seek={second} conv=notrunc status=none"
        );
        sh(dir.path(), &line).ok();
        Self(dir)
    }

    fn gpt() -> Self {
        let script = "label: gpt\\nsize=1M\\nsize=8M, name=root\\nsize=8M, name=\"two words\"\\n";
        Self::new(script, 10 * 2048)
    }

    fn mbr() -> Self {
        let script = "label: dos\\nlabel-id: 0xabcdef01\\n1: size=1M, type=c\\n2: size=8M\\n3: size=20M, type=f\\n5: size=8M\\n";
        Self::new(script, 11 * 2048)
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("disk")
    }

    fn cat(&self, partition: &str) -> shunt_test_support::cmd::Ran {
        run(binary::command(&["ext4", "cat", "--partition", partition]).arg(self.path()).arg("/file"))
    }
}

#[test]
fn partitions_are_named_by_number_label_and_uuid() {
    needs_tools!("sfdisk", "mkfs.ext4");
    for (disk, scheme, second) in [(Disk::gpt(), "gpt", "3"), (Disk::mbr(), "mbr", "5")] {
        let info = run(binary::command(&["ext4", "info", "--json"]).arg(disk.path())).ok();
        let info: Value = serde_json::from_str(&info).unwrap();
        assert_eq!(info["scheme"], scheme);
        let parts = info["partitions"].as_array().unwrap();
        let holds = |number: &str| {
            let part = parts.iter().find(|part| part["number"].as_u64() == number.parse().ok()).unwrap();
            (part["holds"].as_str().unwrap(), part["uuid"].as_str().unwrap(), &part["filesystem_uuid"])
        };
        assert_eq!((holds("2").0, holds(second).0, holds("1").0), ("ext4", "ext4", "zeros"));
        assert_eq!(disk.cat("2").ok(), "first\n");
        assert_eq!(disk.cat(second).ok(), "second\n");
        assert_eq!(disk.cat("fs-second").ok(), "second\n");
        assert_eq!(disk.cat(&holds(second).1.to_uppercase()).ok(), "second\n");
        assert_eq!(disk.cat(holds(second).2.as_str().unwrap()).ok(), "second\n");
        let none = disk.cat("none").fails();
        one_line(&none, "no partition none");
        let unnamed = run(binary::command(&["ext4", "ls"]).arg(disk.path())).fails();
        one_line(&unnamed, "--partition");
        assert!(unnamed.contains("fs-second") || unnamed.contains("two words"), "{unnamed}");
    }
    assert_eq!(Disk::gpt().cat("two words").ok(), "second\n");
}

#[test]
fn a_partition_is_mounted() {
    needs_mount!();
    needs_tools!("sfdisk", "mkfs.ext4");
    let disk = Disk::gpt();
    let mnt = disk.0.path().join("mnt");
    fs::create_dir(&mnt).unwrap();
    run(binary::command(&["ext4", "--daemon", "-o", "partition=root"]).arg(disk.path()).arg(&mnt)).ok();
    let seen = fs::read(mnt.join("file"));
    patiently(|| run(binary::command(&["umount"]).arg(&mnt))).ok();
    assert_eq!(seen.unwrap(), b"first\n");
}

/// Two file systems in one image are written at once; none is mounted twice, or in addition to a mount of the whole image.
#[test]
fn partitions_are_mounted_side_by_side() {
    needs_mount!();
    needs_tools!("sfdisk", "mkfs.ext4", "e2fsck");
    let disk = Disk::gpt();
    let dir = disk.0.path();
    let at = |name: &str| dir.join("at").join(name);
    for name in ["first", "second", "other"] {
        fs::create_dir_all(at(name)).unwrap();
    }
    let mount = |options: &[&str], name: &str| {
        let mut command = binary::command(&["ext4", "--daemon"]);
        run_for(20, command.args(options).arg(disk.path()).arg(at(name)))
    };
    let unmount = |name: &str| patiently(|| run(binary::command(&["umount"]).arg(at(name)))).ok();
    let second = (10 * 2048 * 512).to_string();
    mount(&["--partition", "root"], "first").ok();
    // An offset that no partition table lists is also a part: it ends where its file system does.
    mount(&["--offset", &second], "second").ok();
    let refused = |options: &[&str]| {
        let ran = mount(options, "other");
        assert_eq!(ran.status.and_then(|status| status.code()), Some(4), "{options:?}: {ran:?}");
        one_line(&ran.err, "locked");
    };
    refused(&["--partition", "root"]);
    refused(&["--partition", "root", "--read-only"]);
    refused(&["--partition", "two words"]);
    fs::write(at("first").join("new"), "one").unwrap();
    fs::write(at("second").join("new"), "two").unwrap();
    unmount("first");
    // Several mounts may read it, but not together with a writer.
    mount(&["--partition", "root", "--read-only"], "first").ok();
    mount(&["--partition", "root", "--read-only"], "other").ok();
    let read = fs::read_to_string(at("other").join("new"));
    unmount("other");
    refused(&["--partition", "root"]);
    unmount("first");
    unmount("second");
    assert_eq!(read.unwrap(), "one");
    assert_eq!(
        run(binary::command(&["ext4", "cat", "--offset", &second]).arg(disk.path()).arg("/new")).ok(),
        "two"
    );
    sh(dir, "dd if=disk of=first.img bs=1M skip=2 count=8 status=none; e2fsck -fn first.img").ok();
    sh(dir, "dd if=disk of=second.img bs=1M skip=10 count=8 status=none; e2fsck -fn second.img").ok();
}

/// Parts of an image that is mounted as a whole cannot be mounted.
#[test]
fn a_part_of_what_is_mounted_is_left_alone() {
    needs_mount!();
    let Ok(image) = Image::make(&[], 16) else { return shunt_test_support::skip::skip("no mkfs.ext4") };
    for options in [&[][..], &["--read-only"]] {
        let mount = image.by_shunt(options);
        let aside = image.aside().join("part");
        fs::create_dir_all(&aside).unwrap();
        let mut part = binary::command(&["ext4", "--daemon", "--offset", "0"]);
        let ran = run_for(20, part.arg(image.path()).arg(&aside));
        assert_eq!(ran.status.and_then(|status| status.code()), Some(4), "{options:?}: {ran:?}");
        one_line(&ran.err, "locked");
        drop(mount);
    }
}

/// An image that the kernel may write to is not mounted, and one line gives the reason.
#[test]
fn an_image_in_use_is_left_alone() {
    needs_mount!();
    let Ok(image) = Image::make(&[], 16) else { return shunt_test_support::skip::skip("no mkfs.ext4") };
    let refused = |word| {
        let ran = run_for(20, &mut image.mount_command(&[]));
        assert_eq!(ran.status.and_then(|status| status.code()), Some(4), "{ran:?}");
        one_line(&ran.err, word);
    };
    let Ok(kernel) = image.by_kernel("rw") else {
        return shunt_test_support::skip::kernel_cannot("no loop devices");
    };
    refused("loop device");
    drop(kernel);
    let file = File::open(image.path()).unwrap();
    rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive).unwrap();
    refused("locked");
    drop(file);
    // Its block device, mounted by the kernel, which opens it exclusively.
    let disk = Loop::over(&image.path()).unwrap();
    let (device, mnt) = (disk.path(), image.aside().join("kernel"));
    let mounted = run(Command::new("mount").args(["-t", "ext4", device]).arg(&mnt));
    let over = image.aside().join("over");
    fs::create_dir(&over).unwrap();
    let ran = run_for(20, binary::command(&["ext4", "--daemon", device]).arg(&over));
    patiently(|| run(Command::new("umount").arg(&mnt)));
    let alone = run_for(20, binary::command(&["ext4", "--daemon", device]).arg(&over));
    let kernel = run(Command::new("mount").args(["-t", "ext4", device]).arg(&mnt));
    patiently(|| run(binary::command(&["umount"]).arg(&over)));
    mounted.ok();
    one_line(&ran.fails(), "in use");
    alone.ok();
    assert!(!kernel.success(), "the kernel mounts what is ours: {kernel:?}");
}

/// An image that only the caller may open is passed as a descriptor.
#[test]
fn an_open_image_is_handed_on() {
    needs_mount!();
    let Ok(image) = Image::make(&[], 16) else { return shunt_test_support::skip::skip("no mkfs.ext4") };
    let file = File::open(image.path()).unwrap();
    fs::remove_file(image.path()).unwrap();
    rustix::io::fcntl_setfd(&file, rustix::io::FdFlags::empty()).unwrap();
    let fd = file.as_raw_fd().to_string();
    run_for(20, &mut image.mount_command(&["--fd", &fd])).ok();
    let mount = image.by_shunt_already();
    assert!(mount.at().join("lost+found").is_dir());
    let wrong = run_for(20, &mut image.mount_command(&["--fd", "987"])).fails();
    one_line(&wrong, "--fd 987");
}

/// mount(8) and umount(8) find their helpers.
#[test]
fn mount_knows_the_type() {
    needs_mount!();
    let Ok(image) = Image::make(&[], 16) else { return shunt_test_support::skip::skip("no mkfs.ext4") };
    let helpers = image.aside().join("helpers");
    fs::create_dir(&helpers).unwrap();
    run(binary::command(&["install-helpers", "--dir"]).arg(&helpers)).ok();
    let mnt = image.aside().join("ours");
    fs::create_dir(&mnt).unwrap();
    // Arguments as mount(8) passes them.
    run_for(
        20,
        Command::new(helpers.join("mount.shunt.ext4")).arg(image.path()).arg(&mnt).args(["-o", "ro,noatime"]),
    )
    .ok();
    let mount = image.by_shunt_already();
    assert!(mount.at().join("lost+found").is_dir());
    run_for(20, Command::new(helpers.join("umount.fuse.shunt.ext4")).arg(&mnt)).ok();
    assert_eq!(shunt_tests::mounts::count(&mnt), 0);
}

/// An external journal is accepted, and no other device.
#[test]
fn an_external_journal_is_named() {
    needs_mount!();
    needs_tools!("mke2fs", "losetup", "e2fsck");
    let dir = tempfile::tempdir().unwrap();
    let journal = dir.path().join("journal");
    sh(dir.path(), "truncate -s 16M journal other; mkdir mnt").ok();
    sh(dir.path(), "for log in journal other; do mke2fs -q -F -b 4096 -O journal_dev $log; done").ok();
    let Some(device) = Loop::over(&journal) else {
        return shunt_test_support::skip::skip("no loop device");
    };
    let image = Image::make(&["-b", "4096", "-J", &format!("device={}", device.path())], 32).unwrap();
    drop(device);
    let ext4 = |args: &[&str], journal: Option<&str>| {
        let mut command = binary::command(&["ext4"]);
        command.args(args);
        if let Some(journal) = journal {
            command.arg("--journal").arg(dir.path().join(journal));
        }
        command.arg(image.path());
        command
    };
    let mnt = dir.path().join("mnt");
    let mount = |args: &[&str], journal| run_for(20, ext4(args, journal).arg(&mnt));
    for (named, says) in [(None, "name it with --journal"), (Some("other"), "another file system")] {
        let ran = mount(&["--daemon"], named);
        assert!(!ran.success() && ran.err.contains(says), "{}", ran.err);
    }
    mount(&["--daemon", "--takeover", "off"], Some("journal")).ok();
    // The journal is locked meanwhile.
    let lock = run(Command::new("flock").args(["-n"]).arg(&journal).arg("true"));
    fs::write(mnt.join("synced"), "is there").unwrap();
    let synced = File::open(mnt.join("synced")).unwrap().sync_all();
    let stat = run_for(20, binary::command(&["stat", "--json"]).arg(&mnt)).ok();
    let pid = serde_json::from_str::<Value>(&stat).unwrap()["pid"].as_u64().unwrap() as u32;
    shunt_tests::mounts::signal(pid, rustix::process::Signal::KILL);
    let gone = || shunt_tests::mounts::count(&mnt) == 0;
    assert!(shunt_test_support::cmd::within(std::time::Duration::from_secs(10), gone));
    assert!(!lock.success());
    synced.unwrap();
    // The change is in the journal only.
    let ran = run(&mut ext4(&["info"], None));
    assert!(!ran.success() && ran.err.contains("--journal"), "{}", ran.err);
    assert!(run(&mut ext4(&["info"], Some("journal"))).ok().contains("needs recovery"));
    assert_eq!(run(ext4(&["cat"], Some("journal")).arg("/synced")).ok(), "is there");
    mount(&["--daemon"], Some("journal")).ok();
    let read = fs::read_to_string(mnt.join("synced"));
    patiently(|| run_for(60, binary::command(&["umount"]).arg(&mnt))).ok();
    assert_eq!(read.unwrap(), "is there");
    let device = Loop::over(&journal).unwrap();
    run_for(60, Command::new("e2fsck").args(["-fn", "-j", device.path()]).arg(image.path())).ok();
}
