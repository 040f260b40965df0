//! Simulates a power cut at each write that the lab recorded (`lab/extmap work_that_is_recorded`): the file system is
//! recovered, e2fsck finds no error, and its files have a permitted content.
//!
//! `CUT_LOG` names the log; `CUT_SEED` and `CUT_STEPS` are the values it was recorded with. `CUT_TIME` (seconds) limits the run
//! time: cuts are then spread over the whole log.

mod oracle;
mod write_log;

use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use shunt_ext4::{FileDevice, Filesystem, MemoryDevice};
use workload_plan::Step;

use crate::lab::workload_plan;
use oracle::Expected;
use write_log::Log;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Asserts that e2fsck finds no error.
fn check(image: &[u8]) -> Result<(), String> {
    let file = tempfile::NamedTempFile::new_in("/dev/shm").unwrap();
    std::fs::write(&file, image).unwrap();
    let output = Command::new("e2fsck").arg("-fn").arg(file.path()).output().unwrap();
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stdout).into_owned()),
    }
}

fn content(fs: &Filesystem, file: u8) -> Result<Option<Vec<u8>>, String> {
    let to_text = |error: shunt_ext4::Error| format!("file {file}: {error}");
    match fs.walk(format!("/{}", workload_plan::name(file)).as_bytes()) {
        Ok(inode) => {
            let mut content = vec![0; inode.size as usize];
            fs.read(&inode, 0, &mut content).map_err(to_text)?;
            Ok(Some(content))
        }
        Err(shunt_ext4::Error::NotFound) => Ok(None),
        Err(error) => Err(to_text(error)),
    }
}

/// Maximum size of the recorded disk.
const DISK: usize = 128 << 20;

/// Returns the ranges of the recorded disk that a file occupies.
fn places(disk: &[u8], name: &str) -> Vec<std::ops::Range<usize>> {
    // Extents are available for file devices only.
    let file = tempfile::NamedTempFile::new_in("/dev/shm").unwrap();
    std::fs::write(&file, disk).unwrap();
    let device = FileDevice::new(file.reopen().unwrap(), true).unwrap();
    let fs = Filesystem::open(Arc::new(device)).unwrap();
    let inode = fs.walk(format!("/{name}").as_bytes()).unwrap();
    let extents = fs.extents(&inode, 4096).unwrap().expect("the file is mapped by extents");
    let places =
        extents.iter().map(|extent| extent.device as usize..(extent.device + extent.length) as usize);
    places.collect()
}

fn gather(disk: &[u8], places: &[std::ops::Range<usize>]) -> Vec<u8> {
    places.iter().map(|place| &disk[place.clone()]).collect::<Vec<_>>().concat()
}

/// Checks the recovery of a disk image as of the power cut.
fn survives(image: &[u8], steps: &[Step], begun: usize) -> Result<(), String> {
    let to_text = |error: shunt_ext4::Error| error.to_string();
    let device = Arc::new(MemoryDevice::new(image.to_vec()));
    let fs = Filesystem::open_writable(device.clone()).map_err(to_text)?;
    let last = steps[..=begun].iter().map(|step| step.file).max().unwrap_or(0);
    for file in 1..=last {
        Expected::of(file, steps, begun).judge(content(&fs, file)?.as_deref())?;
    }
    fs.close().map_err(to_text)?;
    check(&device.bytes())
}

#[test]
fn every_power_cut_of_the_log() {
    let Ok(path) = std::env::var("CUT_LOG") else {
        eprintln!("skipped: CUT_LOG is not set to a log of writes");
        return;
    };
    let steps = workload_plan::steps(number("CUT_SEED", 1), number("CUT_STEPS", 120) as usize);
    let (mut disk, mut begun) = (vec![0; DISK], 0);
    let writes: Vec<write_log::Write> = Log::open(&path).unwrap().collect();
    // The two files are located on the final disk: their blocks were allocated before the first step.
    writes.iter().for_each(|write| write.apply(&mut disk));
    let [image, mark] = [workload_plan::IMAGE, workload_plan::MARK].map(|name| places(&disk, name));
    assert_eq!(gather(&disk, &image).len() as u64, workload_plan::SIZE);
    disk.fill(0);
    let step_of = |disk: &[u8]| u64::from_le_bytes(gather(disk, &mark)[..8].try_into().unwrap()) as usize;
    let (began, seconds) = (Instant::now(), number("CUT_TIME", 600) as f64);
    let (mut cuts, mut spent) = (0, 0.0);
    for (n, write) in writes.iter().enumerate() {
        write.apply(&mut disk);
        begun = step_of(&disk);
        if begun == 0 || begun > steps.len() {
            // The file system is still being created.
            begun = 0;
            continue;
        }
        // If there is no time for every write, the cuts are spread evenly.
        let due = began.elapsed().as_secs_f64() <= seconds * (n + 1) as f64 / writes.len() as f64;
        if !due && cuts > 0 {
            continue;
        }
        cuts += 1;
        let begins = Instant::now();
        survives(&gather(&disk, &image), &steps, begun - 1).unwrap_or_else(|why| {
            let kept = std::env::temp_dir().join("shunt-extmap-cut.img");
            let _ = std::fs::write(&kept, gather(&disk, &image));
            panic!("cut after write {n}, in step {}: {why}\nthe image: {}", begun - 1, kept.display());
        });
        spent += begins.elapsed().as_secs_f64();
    }
    let all = writes.len();
    println!("cuts: {cuts} of {all} writes, {} steps, {:.2} s each", steps.len(), spent / f64::from(cuts));
    assert_eq!(begun, steps.len(), "the log ends before the workload did");
    assert!(cuts > 0);
}
