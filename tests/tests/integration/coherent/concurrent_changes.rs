//! Concurrent changes on both sides of a coherent mirror.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use shunt_test_support::{needs_mount, pace};
use shunt_tests::Fixture;

use super::{SOON, either_way, same_soon, state};

/// Small random generator: the same steps in each run, in any order of the threads.
struct Rng(u64);

impl Rng {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

const DIRS: [&str; 3] = ["", "d0/", "d1/"];

/// Executes a random change; one that is not possible at the moment is skipped.
fn stir(root: &Path, rng: &mut Rng) {
    let mut name = || root.join(format!("{}n{}", DIRS[rng.roll(3) as usize], rng.roll(5)));
    let (one, other) = (name(), name());
    match rng.roll(12) {
        0..3 => drop(fs::write(&one, format!("{}", rng.roll(1 << 20)))),
        3 => drop(fs::remove_file(&one)),
        4 => drop(fs::rename(&one, &other)),
        5 => drop(fs::hard_link(&one, &other)),
        6 => drop(symlink(format!("t{}", rng.roll(100)), &one)),
        7 => drop(fs::create_dir(&one)),
        8 => drop(fs::remove_dir_all(&one)),
        9 => {
            let mode = PermissionsExt::from_mode(0o600 | rng.roll(64) as u32);
            if !one.is_symlink() {
                drop(fs::set_permissions(&one, mode));
            }
        }
        10 => drop(fs::rename(&one, root.join("d0/moved"))),
        _ => drop(fs::rename(root.join("d0/moved"), &one)),
    }
}

const ROUNDS: u32 = 10;
const ROUND: Duration = Duration::from_millis(400);

/// Number of names created in a round. The mount has cached them as absent, and only the event of the creation invalidates
/// that: there is no other change of the same name, each of which would cause several invalidations; no listing of the
/// directory; no inode that turns out to be deleted.
const ONCE: u32 = 30;

fn once(round: u32) -> impl Iterator<Item = String> {
    (0..ONCE).map(move |name| format!("once/{round}-{name}"))
}

/// Returns the maximum age of the data read, in milliseconds, and the number of reads, while both sides change the same small
/// tree at random for a while.
fn hammer(s: &Fixture, round: u32) -> (u64, u32) {
    let over = AtomicBool::new(false);
    let start = Instant::now();
    // This clock stops between rounds, when nothing is written.
    let millis = || (ROUND * round + start.elapsed()).as_millis() as u64;
    std::thread::scope(|scope| {
        for (seed, root) in [(11, s.src()), (22, s.src()), (33, s.mnt()), (44, s.mnt())] {
            let over = &over;
            scope.spawn(move || {
                let mut rng = Rng(0x9e37_79b9 * (seed + u64::from(round)));
                while !over.load(Ordering::Relaxed) {
                    stir(root, &mut rng);
                    std::thread::sleep(Duration::from_micros(rng.roll(600)));
                }
            });
        }
        scope.spawn(|| {
            for name in once(round) {
                fs::write(s.lower(name), "1").unwrap();
                std::thread::sleep(ROUND / ONCE / 2);
            }
        });
        // Writes the time, as a symlink target and as file content, always replacing the previous one.
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                let now = millis().to_string();
                let new = s.lower("beat-new");
                symlink(&now, &new).and_then(|()| fs::rename(&new, s.lower("beat"))).unwrap();
                fs::write(&new, &now).and_then(|()| fs::rename(&new, s.lower("beat-file"))).unwrap();
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        // None: replaced between lookup and open, for which an open of a deleted file may return ESTALE.
        let number = |text: String| text.parse::<u64>().ok();
        let target = |path| number(fs::read_link(path).ok()?.into_os_string().into_string().ok()?);
        let contents = |path| number(fs::read_to_string(path).ok()?);
        let (mut worst, mut looks) = (0, 0);
        while start.elapsed() < ROUND {
            // Data is stale if it is older than the lower data read before it, even if the writer was delayed.
            let below = (target(s.lower("beat")), contents(s.lower("beat-file")));
            let above = (target(s.path("beat")), contents(s.path("beat-file")));
            for (below, above) in [(below.0, above.0), (below.1, above.1)] {
                if let (Some(below), Some(above)) = (below, above) {
                    worst = worst.max(below.saturating_sub(above));
                    looks += 1;
                }
            }
        }
        // Before any assertion: the other threads end only then.
        over.store(true, Ordering::Relaxed);
        (worst, looks)
    })
}

/// Both sides change the same small tree. Meanwhile no data read is older than the coherence bound, and whenever both rest they
/// are equal.
#[test]
fn both_sides_hammer() {
    needs_mount!();
    either_way(|s| {
        for dir in ["d0", "d1", "once"] {
            fs::create_dir(s.lower(dir)).unwrap();
        }
        symlink("0", s.lower("beat")).unwrap();
        fs::write(s.lower("beat-file"), "0").unwrap();
        let names: Vec<String> =
            DIRS.iter().flat_map(|dir| (0..5).map(move |n| format!("{dir}n{n}"))).collect();
        let mut names: Vec<&str> = names.iter().map(String::as_str).collect();
        names.extend(["d0", "d1", "d0/moved", "beat", "beat-file"]);
        let bound = pace::limit(SOON).as_millis() as u64;
        (0..ROUNDS).flat_map(once).for_each(|name| drop(state(&s.path(name))));
        let (mut looks, mut ages) = (0, Vec::new());
        for round in 0..ROUNDS {
            let (worst, looked) = hammer(s, round);
            ages.push(worst);
            looks += looked;
            let rare: Vec<String> = once(round).collect();
            let all: Vec<&str> = names.iter().copied().chain(rare.iter().map(String::as_str)).collect();
            same_soon(s, &format!("after round {round}"), &all);
        }
        // On a loaded machine the daemon waits for a processor: most rounds have to keep the bound.
        ages.sort();
        assert!(ages[ages.len() / 2] < bound, "the oldest that was read, in ms, by round: {ages:?}");
        assert!(looks > 100, "only {looks} looks");
        // No late event makes it wrong again.
        std::thread::sleep(Duration::from_millis(1200));
        for name in &names {
            assert_eq!(state(&s.lower(name)), state(&s.path(name)), "{name}, later");
        }
    });
}
