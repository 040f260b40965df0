//! Write benchmarks with sync.

use std::os::unix::fs::FileExt;
use std::path::Path;

use super::{Aligned, Measure, PAGE, PIECE, SIZE, compare, disks_alike, open, random_pages, rate};
use crate::lab::connection_abort::eventually;
use crate::lab::disk::{Mount, forget_caches, module_is_here};
use crate::lab::writes::is_unclaimed;

const RANDOM: usize = 1500;
const SMALL: usize = 300;

/// Returns MiB/s including fsync, for a new file or an overwrite.
fn sequential(root: &Path, new: bool, direct: bool) -> f64 {
    let path = root.join(if new { "new" } else { "large" });
    if new {
        let _ = std::fs::remove_file(&path);
    }
    forget_caches();
    let (file, data) = (open(&path, true, direct), Aligned::new(PIECE, 5));
    rate((SIZE >> 20) as f64, || {
        (0..SIZE).step_by(PIECE).for_each(|at| file.write_all_at(&data, at).unwrap());
        file.sync_all().unwrap();
    })
}

/// Returns pages per second including fsync, for an overwrite.
fn random(root: &Path, direct: bool) -> f64 {
    forget_caches();
    let (file, data) = (open(&root.join("large"), true, direct), Aligned::new(PAGE, 6));
    rate(RANDOM as f64, || {
        random_pages(RANDOM).for_each(|at| file.write_all_at(&data, at).unwrap());
        file.sync_all().unwrap();
    })
}

/// Returns files per second, with one sync at the end.
fn small(root: &Path) -> f64 {
    for n in 0..SMALL {
        let _ = std::fs::remove_file(root.join(format!("small{n}")));
    }
    forget_caches();
    rate(SMALL as f64, || {
        (0..SMALL).for_each(|n| std::fs::write(root.join(format!("small{n}")), [1; 8000]).unwrap());
        rustix::fs::syncfs(std::fs::File::open(root).unwrap()).unwrap();
    })
}

const MEASURES: [Measure; 7] = [
    Measure {
        name: "new, 1 MiB at a time, fsync",
        unit: "MiB/s",
        bar: Some(1.0),
        run: |root| sequential(root, true, false),
    },
    Measure {
        name: "over it, 1 MiB at a time, fsync",
        unit: "MiB/s",
        bar: Some(1.0),
        run: |root| sequential(root, false, false),
    },
    Measure {
        name: "new, 1 MiB at a time, O_DIRECT",
        unit: "MiB/s",
        bar: Some(0.9),
        run: |root| sequential(root, true, true),
    },
    Measure {
        name: "over it, 1 MiB at a time, O_DIRECT",
        unit: "MiB/s",
        bar: Some(0.9),
        run: |root| sequential(root, false, true),
    },
    Measure { name: "random 4 KiB, fsync", unit: "/s", bar: Some(0.8), run: |root| random(root, false) },
    Measure { name: "random 4 KiB, O_DIRECT", unit: "/s", bar: Some(0.8), run: |root| random(root, true) },
    Measure { name: "files of 8 KB, new", unit: "/s", bar: None, run: small },
];

#[test]
#[ignore = "a measurement"]
fn writes_compared_with_kernel_ext4() {
    if !module_is_here() {
        return;
    }
    let fill = |root: &Path| std::fs::write(root.join("large"), vec![7; SIZE as usize]).unwrap();
    let Some([of_kernel, of_shunt]) = disks_alike(fill) else { return };
    let kernel = Mount::kernel(&of_kernel, "/tmp/kernel", "rw");
    let shunt = Mount::shunt(&of_shunt, "/tmp/shunt", &["--data", "extmap"]);
    let missed = compare(&MEASURES, &kernel.0, &shunt.0);
    let requests = shunt.requests("write");
    println!("requests to the daemon for content: {requests}");
    drop(shunt);
    assert!(eventually(|| is_unclaimed(&of_shunt)), "the device stays in use");
    // Figures without the module.
    let daemon = Mount::shunt(&of_shunt, "/tmp/shunt", &["--data", "daemon"]);
    for measure in &MEASURES {
        println!("by the daemon: {}, {}: {:.0}", measure.name, measure.unit, (measure.run)(&daemon.0));
    }
    assert_eq!((requests, missed), (0, vec![]));
}
