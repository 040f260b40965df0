//! Against the kernel's own ext4, in the same boot and on the same device: ratios, which say more than the figures.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::Instant;

use super::disk::{Mount, forget_caches, module_is_here};
use super::ext4::image;

const SIZE: u64 = 128 << 20;
const PIECE: usize = 1 << 20;

/// Bytes at a multiple of a page.
fn aligned(room: &mut [u8], length: usize) -> &mut [u8] {
    let start = room.as_ptr().align_offset(4096);
    &mut room[start..start + length]
}

fn open(path: &Path, direct: bool) -> File {
    File::options().read(true).custom_flags(if direct { libc::O_DIRECT } else { 0 }).open(path).unwrap()
}

/// MiB/s.
fn sequential(path: &Path, direct: bool) -> f64 {
    forget_caches();
    let (file, mut room) = (open(path, direct), vec![0; PIECE + 4096]);
    let buffer = aligned(&mut room, PIECE);
    let begun = Instant::now();
    (0..SIZE / PIECE as u64).for_each(|n| file.read_exact_at(buffer, n * PIECE as u64).unwrap());
    (SIZE >> 20) as f64 / begun.elapsed().as_secs_f64()
}

/// Reads of 4 KiB a second, at random places.
fn random(path: &Path, direct: bool, count: u64) -> f64 {
    forget_caches();
    let (file, mut room) = (open(path, direct), vec![0; 8192]);
    let buffer = aligned(&mut room, 4096);
    let mut state = 0x9e37_79b9_u64;
    let begun = Instant::now();
    for _ in 0..count {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        file.read_exact_at(buffer, (state >> 33) % (SIZE / 4096) * 4096).unwrap();
    }
    count as f64 / begun.elapsed().as_secs_f64()
}

/// All small files, cold, then once more.
fn small(root: &Path) -> [f64; 2] {
    forget_caches();
    std::array::from_fn(|_| {
        let begun = Instant::now();
        (0..500).for_each(|n| assert_eq!(fs::read(root.join(format!("small{n}"))).unwrap().len(), 8000));
        500.0 / begun.elapsed().as_secs_f64()
    })
}

fn all(root: &Path) -> [(&'static str, f64); 6] {
    let file = root.join("large");
    let [cold, warm] = small(root);
    [
        ("sequential 1 MiB, cold, MiB/s", sequential(&file, false)),
        ("sequential 1 MiB, O_DIRECT, MiB/s", sequential(&file, true)),
        ("random 4 KiB, cold, /s", random(&file, false, 3000)),
        ("random 4 KiB, O_DIRECT, /s", random(&file, true, 3000)),
        ("files of 8 KB, cold, /s", cold),
        ("files of 8 KB, once more, /s", warm),
    ]
}

#[test]
#[ignore = "a measurement"]
fn beside_the_kernels_ext4() {
    if !module_is_here() {
        return;
    }
    let image = image("speed", 400, &[], |root| {
        fs::write(root.join("large"), vec![7; SIZE as usize]).unwrap();
        (0..500).for_each(|n| fs::write(root.join(format!("small{n}")), [1; 8000]).unwrap());
    });
    let by = |data| {
        let mount = Mount::shunt(&image, "/tmp/shunt", &["--read-only", "--data", data]);
        let figures = all(&mount.0);
        println!("--data {data}: READ requests {}", mount.requests("read"));
        figures
    };
    let mut rounds = Vec::new();
    for _ in 0..2 {
        let kernel = Mount::kernel(&image, "/tmp/kernel", "ro,loop");
        let of_kernel = all(&kernel.0);
        drop(kernel);
        rounds.push([of_kernel, by("extmap")]);
    }
    println!("| lab, best of 2 | kernel ext4 | extmap | ratio |\n|---|---|---|---|");
    for n in 0..6 {
        let best = |who: usize| rounds.iter().map(|round| round[who][n].1).fold(0.0, f64::max);
        let [kernel, extmap] = [0, 1].map(best);
        println!("| {} | {kernel:.0} | {extmap:.0} | {:.2} |", rounds[0][0][n].0, extmap / kernel);
    }
    // Last, for it takes longest.
    for (what, figure) in by("daemon") {
        println!("by the daemon: {what}: {figure:.0}");
    }
    fs::remove_file(image).unwrap();
}
