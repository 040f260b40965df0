//! Seven kinds of concurrent access to a file without synchronisation: no byte ever belongs to another offset or another file,
//! all ways of reading agree once writers rest, and the kernel's own ext4 finds the same content.
//!
//! `RACE_TIME` (seconds), `RACE_SEED`; with `RACE_ON=kernel` the kernel's ext4 runs the race, to verify the test itself.

pub mod workers;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::aligned::Aligned;
use super::connection_abort::eventually;
use super::disk::{BLOCK, Mount, forget_caches, module_is_here, run};
use super::rng::Rng;
use super::tagged_content;
use super::writes::is_free;
use workers::{ALL, Worker, open};

/// Number of rounds in a mount, and their duration.
const ROUNDS: u8 = 3;
const ROUND: Duration = Duration::from_millis(2500);

pub fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn on_kernel() -> bool {
    std::env::var("RACE_ON").is_ok_and(|who| who == "kernel")
}

fn mount(image: &Path) -> Mount {
    match on_kernel() {
        true => Mount::kernel(image, "/tmp/race", "loop"),
        false => Mount::shunt(image, "/tmp/race", &["--data", "extmap"]),
    }
}

/// Runs all workers until the time is over. Returns the number of operations.
fn race(path: &Path, file: u8, seed: u64) -> u64 {
    let (over, turns) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for (n, work) in ALL.into_iter().enumerate() {
            let rng = Rng::new(seed * 7 + n as u64);
            let mut worker = Worker { path, file, number: n as u8, turn: 0, rng };
            let (over, turns) = (&over, &turns);
            scope.spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    if let Err(error) = work(&mut worker) {
                        over.store(true, Ordering::Relaxed);
                        panic!("worker {n}, turn {}: {error}", worker.turn);
                    }
                    worker.turn += 1;
                }
                turns.fetch_add(worker.turn, Ordering::Relaxed);
            });
        }
        let end = Instant::now() + ROUND;
        while Instant::now() < end && !over.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(50));
        }
        over.store(true, Ordering::Relaxed);
    });
    turns.into_inner()
}

/// Returns the content of the file, and asserts that all ways of reading agree.
fn content(path: &Path, file: u8) -> Vec<u8> {
    use std::os::unix::fs::FileExt;
    let cached = fs::read(path).unwrap();
    assert_eq!(fs::metadata(path).unwrap().len(), cached.len() as u64);
    tagged_content::check(file, 0, &cached).unwrap_or_else(|why| panic!("at rest: {why}"));
    forget_caches();
    assert!(fs::read(path).unwrap() == cached, "file {file} differs between the device and the cache");
    let mut direct = Aligned::new(cached.len().next_multiple_of(BLOCK as usize), 0);
    let count = open(path, libc::O_DIRECT).unwrap().read_at(&mut direct, 0).unwrap();
    assert!(direct[..count] == cached[..], "file {file} differs between direct and cached reads");
    cached
}

/// Races several files one after the other, then checks them with the kernel's ext4.
fn one_mount(image: &Path, seed: u64) -> u64 {
    let mounted = mount(image);
    let mut turns = 0;
    let mut wanted: Vec<(PathBuf, Vec<u8>)> = Vec::new();
    for file in 0..ROUNDS {
        let path = mounted.path(&format!("file{file}"));
        let _ = fs::remove_file(&path);
        fs::write(&path, "").unwrap();
        // Earlier files left data in freed blocks: their numbers differ for each seed.
        let number = (seed as u8).wrapping_mul(ROUNDS) + file;
        turns += race(&path, number, seed * u64::from(ROUNDS) + u64::from(file));
        wanted.push((path.clone(), content(&path, number)));
    }
    drop(mounted);
    // The daemon writes its last data after the unmount.
    assert!(on_kernel() || eventually(|| is_free(image)), "the image stays locked");
    run("e2fsck", &["-fn", image.to_str().unwrap()]);
    let kernel = Mount::kernel(image, "/tmp/race", "ro,loop");
    for (path, wanted) in wanted {
        let found = fs::read(&path).unwrap();
        assert_eq!(found.len(), wanted.len(), "{}, mounted by the kernel", path.display());
        assert!(found == wanted, "{} has another content when the kernel mounts it", path.display());
    }
    drop(kernel);
    turns
}

#[test]
fn seven_ways_at_once() {
    if !module_is_here() && !on_kernel() {
        return;
    }
    let image = Path::new("/scratch/race");
    // The fill byte reveals blocks that are shown although they were never written.
    fs::write(image, vec![0xdb; 96 << 20]).unwrap();
    let name = image.to_str().unwrap();
    let end = Instant::now() + Duration::from_secs(number("RACE_TIME", 10));
    let (mut seed, mut turns) = (number("RACE_SEED", 1), 0);
    let small = ["-b", "1024"];
    // Alternates block sizes: a page, and less.
    loop {
        let blocks: &[&str] = if seed.is_multiple_of(3) { &small } else { &["-b", "4096"] };
        run("mkfs.ext4", &[&["-q", "-F", "-E", "nodiscard,lazy_itable_init=0"], blocks, &[name]].concat());
        turns += one_mount(image, seed);
        seed += 1;
        if Instant::now() >= end {
            break;
        }
    }
    fs::remove_file(image).unwrap();
    println!("race: {turns} turns, next seed {seed}");
}
