//! An image that e2fsck considers clean stays clean after any operations, even if it is unusual.
//!
//! Needs e2fsck; in CI (`CI=true`) its absence is a failure. `HOSTILE_TIME` (seconds) extends the run.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use shunt_ext4_hostile::{Checker, Input, Mutant, Verdict, images};

use crate::rng::Rng;

fn checker() -> Option<Checker> {
    if Checker::is_there() {
        return Some(Checker::new());
    }
    assert!(std::env::var_os("CI").is_none(), "e2fsck is not installed");
    eprintln!("skipped: e2fsck is not installed");
    None
}

fn writing(checker: &Checker, bytes: &[u8]) -> Verdict {
    let mut input = Input(bytes);
    let mutant = Mutant::structured(&mut input);
    checker.writing(&mutant, input)
}

/// Replays inputs that once found a bug and are named after it.
#[test]
fn kept_inputs_find_nothing() {
    let Some(checker) = checker() else { return };
    for input in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("inputs/clean")).unwrap() {
        let path = input.unwrap().path();
        let verdict = writing(&checker, &fs::read(&path).unwrap());
        assert!(matches!(verdict, Verdict::Clean(_)), "{}: {verdict:?}", path.display());
    }
}

#[test]
fn a_clean_image_stays_clean() {
    let Some(checker) = checker() else { return };
    let time = std::env::var("HOSTILE_TIME").ok().and_then(|time| time.parse().ok());
    let end = Instant::now() + Duration::from_secs(time.unwrap_or(6));
    let mut rng = Rng(44);
    let (mut asked, mut not_asked, mut worked) = (0, 0, 0);
    for turn in 0.. {
        if Instant::now() > end {
            break;
        }
        // An image, flags, and at most one change.
        let mut bytes = rng.bytes(300);
        bytes[0] = (turn % images().len()) as u8;
        bytes[1] = 0;
        bytes[2] = (turn / images().len() % 2) as u8;
        match writing(&checker, &bytes) {
            Verdict::NotAsked => not_asked += 1,
            Verdict::Clean(operations) => {
                asked += 1;
                worked += operations;
            }
            Verdict::Spoiled(output) => {
                panic!("{} after {bytes:?}: {output}", images()[usize::from(bytes[0])].name)
            }
        }
    }
    println!("{asked} images stayed clean through {worked} operations; {not_asked} images were not checked");
    assert!(asked > 5 && worked > asked, "{asked} images checked, {worked} operations done");
}
