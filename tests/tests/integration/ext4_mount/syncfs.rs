//! `syncfs(2)` on the mount of an image file: what it covers survives a power cut and a kill of the daemon.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use shunt_test_support::cmd::within;
use shunt_test_support::{needs_mount, requirement, run, run_for};
use shunt_tests::image::Mount;
use shunt_tests::power_cut_disk::{LostWrites, PoweredDisk};
use shunt_tests::{Image, Rng, binary, mounts};

/// The expected files, by path.
type Model = BTreeMap<String, Vec<u8>>;

/// The kernel passes `syncfs` of block device mounts on since Linux 6.18.
fn is_passed_on() -> bool {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut numbers = release.split(['.', '-', '+']).map_while(|part| part.parse::<u32>().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    version >= (6, 18)
}

/// Makes a random change, with file data or without.
fn change(at: &Path, model: &mut Model, rng: &mut Rng) {
    let path = format!("d{}/f{}", rng.below(3), rng.below(8));
    let real = at.join(&path);
    fs::create_dir_all(real.parent().unwrap()).unwrap();
    let known = model.keys().nth(rng.below(model.len().max(1))).cloned();
    match (rng.below(5), known) {
        (0, Some(old)) => {
            fs::remove_file(at.join(&old)).unwrap();
            model.remove(&old);
        }
        (1, Some(old)) => {
            fs::rename(at.join(&old), &real).unwrap();
            let content = model.remove(&old).unwrap();
            model.insert(path, content);
        }
        (2, Some(old)) => {
            let more = rng.bytes(3000);
            let mut file = File::options().append(true).open(at.join(&old)).unwrap();
            file.write_all(&more).unwrap();
            model.get_mut(&old).unwrap().extend(more);
        }
        _ => {
            let length = [0, 100, 70_000][rng.below(3)];
            let content = rng.bytes(length);
            fs::write(&real, &content).unwrap();
            model.insert(path, content);
        }
    }
}

fn found(at: &Path) -> Model {
    let directories = (0..3).map(|n| format!("d{n}")).filter(|name| at.join(name).exists());
    let files = directories.flat_map(|name| {
        let entries = fs::read_dir(at.join(&name)).unwrap();
        entries.map(move |entry| format!("{name}/{}", entry.unwrap().file_name().to_string_lossy()))
    });
    files.map(|path| (path.clone(), fs::read(at.join(path)).unwrap())).collect()
}

#[track_caller]
fn holds(cut: &Image, model: &Model, what: &str) {
    {
        let mount = cut.by_shunt(&[]);
        let found = found(mount.at());
        let (names, expected): (Vec<_>, Vec<_>) = (found.keys().collect(), model.keys().collect());
        assert_eq!(names, expected, "{what}");
        assert!(found == *model, "{what}: other content");
        mount.umount().ok();
    }
    cut.check();
}

fn syncs_survive(rounds: usize, options: &[&str]) {
    needs_mount!();
    requirement!(rustix::process::geteuid().is_root(), "needs root");
    if !is_passed_on() {
        return eprintln!("SKIP syncfs: this kernel does not pass it on");
    }
    let disk = PoweredDisk::new(&Image::make(&[], 32).unwrap().path());
    let image = Image::of(disk.path());
    let mut rng = Rng::new(33);
    let mut model = Model::new();
    let mut mount: Option<Mount> = None;
    for round in 0..rounds {
        let mounted =
            mount.take().unwrap_or_else(|| image.by_shunt(&[&["--takeover", "off"], options].concat()));
        let line = run(Command::new("findmnt").args(["-n", "-o", "FSTYPE"]).arg(mounted.at())).ok();
        assert_eq!(line.trim(), "fuseblk.shunt.ext4");
        (0..=rng.below(12)).for_each(|_| change(mounted.at(), &mut model, &mut rng));
        run_for(60, Command::new("sync").arg("-f").arg(mounted.at())).ok();
        let lost = [LostWrites::All, LostWrites::Some][rng.below(2)];
        let killed = rng.below(5) == 0;
        if killed {
            assert!(mounts::signal(mounted.pid(), Signal::KILL));
            assert!(within(Duration::from_secs(60), || mounts::count(mounted.at()) == 0), "it stays mounted");
        }
        holds(&disk.cut(lost, &mut rng), &model, &format!("round {round}, {lost:?} lost, killed: {killed}"));
        // A killed daemon leaves nothing behind that the next one cannot read.
        mount = (!killed).then_some(mounted);
    }
}

#[test]
fn synced_changes_survive_a_power_cut() {
    syncs_survive(12, &[]);
}

#[test]
fn synced_changes_survive_a_power_cut_over_dev_fuse() {
    syncs_survive(12, &["--transport", "dev"]);
}

#[test]
#[ignore = "long: make soak"]
fn a_thousand_syncs_survive() {
    syncs_survive(1000, &[]);
}

/// Programs that still use the mount of a killed daemon do not keep the image from being mounted again.
#[test]
fn a_busy_mount_of_a_killed_daemon_leaves_the_image_free() {
    needs_mount!();
    requirement!(rustix::process::geteuid().is_root(), "needs root");
    let image = Image::make(&[], 32).unwrap();
    let mount = image.by_shunt(&["--takeover", "off"]);
    let file = File::create(mount.at().join("file")).unwrap();
    file.sync_all().unwrap();
    assert!(mounts::signal(mount.pid(), Signal::KILL));
    assert!(within(Duration::from_secs(60), || mounts::count(mount.at()) == 0), "it stays mounted");
    drop(mount);
    let again = image.by_shunt(&[]);
    assert_eq!(fs::metadata(again.at().join("file")).unwrap().len(), 0);
    drop(file);
    again.umount().ok();
    image.check();
}

#[test]
fn no_loop_device_is_used_where_it_is_not_wanted() {
    needs_mount!();
    requirement!(rustix::process::geteuid().is_root(), "needs root");
    let image = Image::make(&[], 32).unwrap();
    let mount = image.by_shunt(&["--no-loop"]);
    let line = run(Command::new("findmnt").args(["-n", "-o", "FSTYPE,SOURCE"]).arg(mount.at())).ok();
    let words: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(words, ["fuse.shunt.ext4", &*image.path().to_string_lossy()]);
}

/// umount(8) waits for the last commit, and the loop device ends with the mount.
#[test]
fn an_image_is_clean_once_it_is_unmounted() {
    needs_mount!();
    requirement!(rustix::process::geteuid().is_root(), "needs root");
    let image = Image::make(&[], 32).unwrap();
    for round in 0..8 {
        let mount = image.by_shunt(&[]);
        let list = run(&mut binary::command(&["list"])).ok();
        assert!(list.contains(&*image.path().to_string_lossy()), "{list}");
        // Nobody else can mount what the daemon writes.
        let device = run(Command::new("findmnt").args(["-n", "-o", "SOURCE"]).arg(mount.at())).ok();
        let other = image.aside().join("other");
        fs::create_dir_all(&other).unwrap();
        let mounted = run_for(20, Command::new("mount").args(["-t", "ext4", device.trim()]).arg(&other));
        assert!(!mounted.success(), "{device}");
        fs::write(mount.at().join(format!("file{round}")), vec![7; 300_000]).unwrap();
        fs::create_dir(mount.at().join(format!("dir{round}"))).unwrap();
        shunt_test_support::patiently(|| run_for(60, Command::new("umount").arg(mount.at()))).ok();
        image.check();
        drop(mount);
        let name = device.trim().strip_prefix("/dev/").expect("a loop device");
        let attached = format!("/sys/block/{name}/loop/backing_file");
        let of_image = || fs::read_to_string(&attached).is_ok_and(|file| file.contains("shunt-image"));
        assert!(within(Duration::from_secs(10), || !of_image()), "the loop device stays");
    }
}
