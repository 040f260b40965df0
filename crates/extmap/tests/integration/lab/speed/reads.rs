//! Read benchmarks with cold caches.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::{Aligned, Measure, PAGE, PIECE, SIZE, compare, disks_alike, open, random_pages, rate};
use crate::lab::disk::{Mount, forget_caches, module_is_here};

const RANDOM: usize = 1000;
const SMALL: usize = 300;

fn fill(root: &Path) {
    fs::write(root.join("large"), vec![7; SIZE as usize]).unwrap();
    (0..SMALL).for_each(|n| fs::write(root.join(format!("small{n}")), [1; 8000]).unwrap());
}

/// Returns MiB/s.
fn sequential(root: &Path, direct: bool) -> f64 {
    forget_caches();
    let (file, mut room) = (open(&root.join("large"), false, direct), Aligned::new(PIECE, 0));
    let pieces = (0..SIZE).step_by(PIECE);
    rate((SIZE >> 20) as f64, || pieces.for_each(|at| file.read_exact_at(&mut room, at).unwrap()))
}

/// Returns pages per second.
fn random(root: &Path, direct: bool) -> f64 {
    forget_caches();
    let (file, mut room) = (open(&root.join("large"), false, direct), Aligned::new(PAGE, 0));
    rate(RANDOM as f64, || {
        random_pages(RANDOM).for_each(|at| file.read_exact_at(&mut room, at).unwrap());
    })
}

fn small(root: &Path) -> f64 {
    let read = |n| assert_eq!(fs::read(root.join(format!("small{n}"))).unwrap().len(), 8000);
    rate(SMALL as f64, || (0..SMALL).for_each(read))
}

const MEASURES: [Measure; 6] = [
    Measure { name: "sequential 1 MiB", unit: "MiB/s", bar: Some(1.0), run: |root| sequential(root, false) },
    Measure {
        name: "sequential 1 MiB, O_DIRECT",
        unit: "MiB/s",
        bar: Some(0.9),
        run: |root| sequential(root, true),
    },
    Measure { name: "random 4 KiB", unit: "/s", bar: Some(0.8), run: |root| random(root, false) },
    Measure { name: "random 4 KiB, O_DIRECT", unit: "/s", bar: Some(0.8), run: |root| random(root, true) },
    Measure {
        name: "files of 8 KB, cold",
        unit: "/s",
        bar: None,
        run: |root| {
            forget_caches();
            small(root)
        },
    },
    Measure { name: "files of 8 KB, cached", unit: "/s", bar: None, run: small },
];

#[test]
#[ignore = "a measurement"]
fn reads_compared_with_kernel_ext4() {
    if !module_is_here() {
        return;
    }
    let Some([of_kernel, of_shunt]) = disks_alike(fill) else { return };
    let kernel = Mount::kernel(&of_kernel, "/tmp/kernel", "ro");
    let shunt = Mount::shunt(&of_shunt, "/tmp/shunt", &["--read-only", "--data", "extmap"]);
    let missed = compare(&MEASURES, &kernel.0, &shunt.0);
    let requests = shunt.requests("read");
    println!("requests to the daemon for content: {requests}");
    drop(shunt);
    // Figures without the module.
    let daemon = Mount::shunt(&of_shunt, "/tmp/shunt", &["--read-only", "--data", "daemon"]);
    for measure in &MEASURES[..4] {
        println!("by the daemon: {}, {}: {:.0}", measure.name, measure.unit, (measure.run)(&daemon.0));
    }
    assert_eq!((requests, missed), (0, vec![]));
}
