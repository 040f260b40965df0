//! Measures the memory for caching 131,072 files.

use std::fs;

use super::common::*;

const FILES: usize = 131_072;

fn meminfo(field: &str) -> i64 {
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap();
    let line = meminfo.lines().find(|line| line.starts_with(field)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Returns the size of the tables as the kernel accounts for them, in bytes.
fn tables() -> u64 {
    let mut seen = std::collections::HashMap::new();
    for info in fs::read_dir("/proc/self/fdinfo").unwrap().flatten() {
        let Ok(text) = fs::read_to_string(info.path()) else { continue };
        let field =
            |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
        if let (Some(id), Some(bytes)) = (field("map_id:"), field("memlock:")) {
            seen.insert(id, bytes);
        }
    }
    seen.values().sum()
}

#[test]
#[ignore = "minutes: part of lab/extension --long"]
fn at_most_50_megabytes() {
    if !module_is_here() {
        return;
    }
    let small = CountingFs::new();
    (0..FILES).for_each(|n| {
        small.add(1, &format!("file{n}"), 0o100_644);
    });
    let mount = Mount::asking(small);
    let slab = || {
        fs::read_to_string("/proc/slabinfo").unwrap().lines().find_map(|line| {
            let mut fields = line.strip_prefix("fext_node ")?.split_whitespace();
            let (_, objects, size) = (fields.next()?, fields.next()?, fields.next()?);
            Some(objects.parse::<u64>().ok()? * size.parse::<u64>().ok()?)
        })
    };
    let vmalloc = meminfo("VmallocUsed");
    for _ in 0..2 {
        for n in 0..FILES {
            fs::symlink_metadata(mount.path(&format!("file{n}"))).unwrap();
        }
    }
    let counts = slab().expect("fext_node in /proc/slabinfo");
    let total = tables() + counts;
    let megabytes = |bytes: u64| bytes as f64 / 1e6;
    println!(
        "\nmemory with {FILES} cached files: tables {:.1} MB, lookup counts {:.1} MB, total {:.1} MB; vmalloc grew {} KiB",
        megabytes(tables()),
        megabytes(counts),
        megabytes(total),
        meminfo("VmallocUsed") - vmalloc
    );
    let again = mount.requests(|| {
        for n in 0..FILES {
            fs::symlink_metadata(mount.path(&format!("file{n}"))).unwrap();
        }
    });
    println!("requests in another pass: {again} of {}", 2 * FILES);
    assert!(total <= 50_000_000, "{total}");
    mount.assert_no_violations();
}
