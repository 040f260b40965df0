//! Data through the daemon on every transport, compared with each other and with passthrough.

use std::any::Any;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::Instant;

use rustix::fs::{Advice, fadvise};
use serde_json::Value;
use shunt_test_support::{needs_mount, rings};
use shunt_tests::{Image, Plan, Rng, mounts};

const SIZE: u64 = 128 << 20;
const PIECE: usize = 1 << 20;
const PAGE: u64 = 4096;
const RANDOM_READS: usize = 2000;
const ROUNDS: usize = 5;

/// A name and the options of the mount. The last word of an io_uring name is its kind of buffers.
const WAYS: [(&str, &[&str]); 6] = [
    ("/dev/fuse, spliced", &["--passthrough=off"]),
    ("/dev/fuse, copied", &["--passthrough=off", "--no-splice"]),
    ("io_uring, per-entry", &["--passthrough=off", "--transport=uring", "--ring-buffers=per-entry"]),
    ("io_uring, pool", &["--passthrough=off", "--transport=uring", "--ring-buffers=pool"]),
    ("io_uring, zero-copy", &["--passthrough=off", "--transport=uring", "--ring-buffers=zero-copy"]),
    ("passthrough", &[]),
];

/// Names and options for mounts of an image, which is never passed through.
const IMAGE_WAYS: [(&str, &[&str]); 4] = [
    ("/dev/fuse, spliced", &["--transport=dev"]),
    ("/dev/fuse, copied", &["--transport=dev", "--no-splice"]),
    ("io_uring, per-entry", &["--transport=uring", "--ring-buffers=per-entry"]),
    ("io_uring, zero-copy", &["--transport=uring", "--ring-buffers=zero-copy"]),
];

/// A mount whose data goes through the daemon.
struct Way {
    name: &'static str,
    root: PathBuf,
    pid: u32,
    caches_writes: bool,
    figures: Figures,
    _mount: Box<dyn Any>,
}

/// The figures of one way, of all rounds.
#[derive(Default)]
struct Figures {
    read_mib_s: Vec<f64>,
    read_cpu: Vec<f64>,
    read_busy: Vec<f64>,
    write_mib_s: Vec<f64>,
    write_cpu: Vec<f64>,
    random_s: Vec<f64>,
    random_p99_us: Vec<f64>,
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

/// Time in which the processors of the machine were not idle, in seconds.
fn busy() -> f64 {
    let stat = std::fs::read_to_string("/proc/stat").unwrap();
    let fields = stat.lines().next().unwrap().split_whitespace().skip(1);
    let ticks: Vec<f64> = fields.map(|field| field.parse().unwrap()).collect();
    (ticks.iter().sum::<f64>() - ticks[3] - ticks[4]) / rustix::param::clock_ticks_per_second() as f64
}

/// Drops the pages of the mount; those of the source stay.
fn forget(file: &File) {
    file.sync_all().unwrap();
    fadvise(file, 0, None, Advice::DontNeed).unwrap();
}

fn measure(Way { root, pid, caches_writes, figures, .. }: &mut Way, seed: u64) {
    let pid = *pid;
    let gib = SIZE as f64 / f64::from(1 << 30);
    let mut piece = vec![0; PIECE];
    let file = File::open(root.join("data")).unwrap();
    forget(&file);
    let (cpu, all, start) = (mounts::cpu_seconds(pid), busy(), Instant::now());
    for at in (0..SIZE).step_by(PIECE) {
        file.read_exact_at(&mut piece, at).unwrap();
        assert_eq!(piece[0], (at / PIECE as u64) as u8);
    }
    figures.read_mib_s.push((SIZE >> 20) as f64 / start.elapsed().as_secs_f64());
    figures.read_cpu.push((mounts::cpu_seconds(pid) - cpu) / gib);
    figures.read_busy.push((busy() - all) / gib);

    forget(&file);
    fadvise(&file, 0, None, Advice::Random).unwrap();
    let mut rng = Rng::new(seed);
    let mut times: Vec<f64> = (0..RANDOM_READS)
        .map(|_| {
            let at = rng.below((SIZE / PAGE) as usize) as u64 * PAGE;
            let start = Instant::now();
            file.read_exact_at(&mut piece[..PAGE as usize], at).unwrap();
            start.elapsed().as_secs_f64()
        })
        .collect();
    figures.random_s.push(RANDOM_READS as f64 / times.iter().sum::<f64>());
    times.sort_by(f64::total_cmp);
    figures.random_p99_us.push(times[RANDOM_READS * 99 / 100] * 1e6);

    let file = File::options().write(true).open(root.join("written")).unwrap();
    let (cpu, start) = (mounts::cpu_seconds(pid), Instant::now());
    for at in (0..SIZE).step_by(PIECE) {
        file.write_all_at(&piece, at).unwrap();
    }
    // The mount of an image caches writes. What it has not sent would be measured with the next round.
    if *caches_writes {
        file.sync_all().unwrap();
    }
    figures.write_mib_s.push((SIZE >> 20) as f64 / start.elapsed().as_secs_f64());
    figures.write_cpu.push((mounts::cpu_seconds(pid) - cpu) / gib);
}

fn content() -> Vec<u8> {
    (0..SIZE).map(|at| (at / PIECE as u64) as u8).collect()
}

fn mirror(name: &'static str, options: &[&str]) -> (Way, Value) {
    let mirror = Plan::ext4().args(options).patience(1800).set().unwrap();
    for file in ["data", "written"] {
        std::fs::write(mirror.lower(file), content()).unwrap();
    }
    let (root, pid, stat) = (mirror.path(""), mirror.pid(), mirror.stat());
    (
        Way { name, root, pid, caches_writes: false, figures: Figures::default(), _mount: Box::new(mirror) },
        stat,
    )
}

fn image(name: &'static str, options: &[&str]) -> (Way, Value) {
    let image = Image::make(&[], 3 * (SIZE >> 20)).unwrap();
    let mount = image.by_shunt(options);
    for file in ["data", "written"] {
        std::fs::write(mount.at().join(file), content()).unwrap();
    }
    let (root, pid, stat) = (mount.at().to_owned(), mount.pid(), mount.stat());
    (
        Way {
            name,
            root,
            pid,
            caches_writes: true,
            figures: Figures::default(),
            _mount: Box::new((mount, image)),
        },
        stat,
    )
}

/// Measures all ways that the kernel offers, and prints a table. Zero copy may take the share `max_cpu` of the daemon's processor
/// time that copying takes.
fn compare(
    ways: &[(&'static str, &[&str])],
    mount: impl Fn(&'static str, &[&str]) -> (Way, Value),
    max_cpu: f64,
) {
    let mut mounted = Vec::new();
    for (name, options) in ways.iter().filter(|(name, _)| !name.starts_with("io_uring") || rings::are_on()) {
        let (way, stat) = mount(name, options);
        // A way that the kernel does not offer is the one before.
        if stat["transport_buffers"].as_str().is_none_or(|buffers| name.ends_with(buffers)) {
            mounted.push(way);
        }
    }
    for round in 0..ROUNDS {
        for way in &mut mounted {
            measure(way, round as u64);
        }
    }
    println!(
        "| transport | read, MiB/s | daemon, CPU s/GiB | machine, CPU s/GiB | random 4 KiB, /s | p99, µs | write, MiB/s | daemon, CPU s/GiB |"
    );
    println!("|---|--:|--:|--:|--:|--:|--:|--:|");
    for Way { name, figures: of, .. } in &mounted {
        println!(
            "| {name} | {:.0} | {:.2} | {:.2} | {:.0} | {:.0} | {:.0} | {:.2} |",
            median(&of.read_mib_s),
            median(&of.read_cpu),
            median(&of.read_busy),
            median(&of.random_s),
            median(&of.random_p99_us),
            median(&of.write_mib_s),
            median(&of.write_cpu),
        );
    }
    let find = |wanted: &str| mounted.iter().find(|way| way.name.ends_with(wanted)).map(|way| &way.figures);
    let (Some(copied), Some(moved)) = (find("per-entry"), find("zero-copy")) else { return };
    let cpu = median(&moved.read_cpu) / median(&copied.read_cpu);
    let rate = median(&moved.read_mib_s) / median(&copied.read_mib_s);
    println!(
        "zero copy against copying: {cpu:.2} of the daemon's processor time, {rate:.2} of the throughput"
    );
    assert!(cpu <= max_cpu && rate >= 0.95, "the bars are {max_cpu} and 0.95");
}

#[test]
#[ignore = "a measurement: lab/transports"]
fn data_on_every_transport() {
    needs_mount!();
    compare(&WAYS, mirror, 0.5);
}

#[test]
#[ignore = "a measurement: lab/transports"]
fn data_of_images_on_every_transport() {
    needs_mount!();
    // The image is on a tmpfs, whose small pages take longer to copy.
    compare(&IMAGE_WAYS, image, 0.6);
}
