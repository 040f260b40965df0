//! Operation without OPEN requests: `--cache exclusive --passthrough off`.

use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::process::Command;

use shunt_test_support::{memory, needs_mount};
use shunt_tests::{Fixture, Plan, fixture};

fn no_open(plan: Plan, body: impl Fn(&Fixture)) {
    needs_mount!();
    memory::keeping(|| fixture::perform(plan.clone(), &body));
}

#[test]
fn cached_content_costs_no_request() {
    no_open(Plan::no_open(), |s| {
        for n in 0..50 {
            fs::write(s.lower(format!("f{n}")), vec![n; 10_000]).unwrap();
        }
        let read_all =
            || (0..50).for_each(|n| assert!(fs::read(s.path(format!("f{n}"))).unwrap() == vec![n; 10_000]));
        read_all();
        // The access time of files just read is requested once more.
        read_all();
        let count = || {
            ["open", "release", "flush", "read", "getattr", "statx", "lookup"].map(|name| s.requests(name))
        };
        let before = count();
        (0..20).for_each(|_| read_all());
        assert_eq!(count(), before, "(open, release, flush, read, getattr, statx, lookup)");
        assert!(before[0] <= 1 && before[1] == 0 && before[2] <= 1, "{before:?}");
    });
}

/// More files than the daemon may have open.
#[test]
fn more_files_than_descriptors() {
    no_open(Plan::no_open().open_files(256), |s| {
        let files: Vec<File> = (0..800)
            .map(|n| {
                let path = s.path(format!("f{n}"));
                let mut options = OpenOptions::new();
                let file = options.read(true).write(true).create_new(true).open(path).unwrap();
                file.write_all_at(&[n as u8; 100], 0).unwrap();
                file
            })
            .collect();
        for round in 0..3_u8 {
            for (n, file) in files.iter().enumerate() {
                file.write_all_at(&[round], 100 + u64::from(round)).unwrap();
                let mut byte = [0];
                file.read_exact_at(&mut byte, 7).unwrap();
                assert_eq!(byte[0], n as u8);
            }
        }
        drop(files);
        for n in 0..800_usize {
            let expected: Vec<u8> = [vec![n as u8; 100], vec![0, 1, 2]].concat();
            assert!(fs::read(s.lower(format!("f{n}"))).unwrap() == expected, "f{n}");
        }
    });
}

/// A file without a name lives as long as it is in use, and no longer.
#[test]
fn deleted_files_live_on() {
    no_open(Plan::no_open(), |s| {
        let path = s.path("f");
        let mut file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap();
        file.write_all(b"before").unwrap();
        fs::remove_file(&path).unwrap();
        // Enough other files to evict a descriptor that is cached by chance.
        for n in 0..3000 {
            fs::write(s.path(format!("o{n}")), b"x").unwrap();
        }
        file.write_all(b"+after").unwrap();
        file.sync_all().unwrap();
        file.set_len(8).unwrap();
        file.rewind().unwrap();
        let mut content = String::new();
        file.read_to_string(&mut content).unwrap();
        assert_eq!(content, "before+a");
        drop(file);
        let held = || s.stat()["memory"]["descriptors"].as_u64().unwrap();
        let before = held();
        let nameless =
            OpenOptions::new().read(true).write(true).custom_flags(libc::O_TMPFILE).open(s.mnt()).unwrap();
        nameless.write_all_at(b"nameless", 0).unwrap();
        let mut content = [0; 8];
        nameless.read_exact_at(&mut content, 0).unwrap();
        assert_eq!(&content, b"nameless");
        drop(nameless);
        assert!(
            shunt_test_support::cmd::within(std::time::Duration::from_secs(5), || held() <= before),
            "a descriptor stays"
        );
    });
}

/// An error that the source returns at `open` is returned at the first write.
#[test]
fn an_immutable_file_is_not_written() {
    no_open(Plan::ext4().args(&["--passthrough", "off", "--cache", "exclusive"]), |s| {
        fs::write(s.lower("f"), b"stays").unwrap();
        let chattr = |flag: &str| {
            assert!(Command::new("chattr").arg(flag).arg(s.lower("f")).status().unwrap().success())
        };
        chattr("+i");
        let refused =
            OpenOptions::new().write(true).open(s.path("f")).and_then(|file| file.write_all_at(b"X", 0));
        chattr("-i");
        assert_eq!(refused.unwrap_err().raw_os_error(), Some(libc::EPERM));
        assert_eq!(fs::read(s.path("f")).unwrap(), b"stays");
        // The refusal is not cached.
        OpenOptions::new().write(true).open(s.path("f")).unwrap().write_all_at(b"X", 0).unwrap();
        assert_eq!(fs::read(s.lower("f")).unwrap(), b"Xtays");
    });
}
