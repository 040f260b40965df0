//! The policies in `examples/policies`, from the view of callers.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use shunt_test_support::User;
use shunt_tests::Fixture;
use shunt_tests::fixture::Plan;
use shunt_tests::geotagged_jpeg::{SIZE, has_secret, picture};

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/policies").join(name)
}

/// Sets up files that any user may access, except for the policy. A name with a trailing slash is a directory.
fn fixture(policy: &str, names: &[&str], args: &[&str]) -> Option<Fixture> {
    let policy = example(policy);
    let plan = Plan::tmpfs().args(&["--policy", policy.to_str().unwrap()]).args(args).unmounted();
    let mut fixture = plan.set_or_skip()?;
    if !fixture.mounted() {
        return None;
    }
    fs::set_permissions(fixture.src(), fs::Permissions::from_mode(0o777)).unwrap();
    for name in names {
        let path = fixture.lower(name);
        let mode = if name.ends_with('/') {
            fs::create_dir_all(&path).unwrap();
            0o777
        } else {
            fs::write(&path, if name.ends_with("jpg") { picture() } else { name.as_bytes().to_vec() })
                .unwrap();
            0o666
        };
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }
    // Parent directories that were created on the way.
    for dir in ["Android", "Android/data", "Android/obb"].map(|dir| fixture.lower(dir)) {
        if dir.exists() {
            fs::set_permissions(dir, fs::Permissions::from_mode(0o777)).unwrap();
        }
    }
    fixture.mount();
    Some(fixture)
}

fn names(dir: impl AsRef<Path>) -> BTreeSet<String> {
    fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn fails<T>(result: io::Result<T>) -> Option<Errno> {
    result.err().and_then(|error| Errno::from_io_error(&error))
}

fn write(path: impl AsRef<Path>) -> io::Result<File> {
    File::options().write(true).open(path)
}

const CHAT: u32 = 10100;
const SHOP: u32 = 10101;
const GALLERY: u32 = 10102;

const PHONE: [&str; 9] = [
    "Android/data/com.example.chat/",
    "Android/data/com.example.chat/messages",
    "Android/data/com.example.shop/",
    "Android/data/com.example.shop/cart",
    "Android/obb/com.example.shop/",
    "Android/media/",
    "DCIM/",
    "DCIM/a.jpg",
    "notes",
];

#[test]
fn an_app_has_its_folder_to_itself() {
    let Some(s) = fixture("shared-storage.toml", &PHONE, &[]) else { return };
    let data = s.path("Android/data");
    let (own, other) = (data.join("com.example.chat"), data.join("com.example.shop"));
    User::new(CHAT).run(|| {
        assert_eq!(names(&data), set(&["com.example.chat"]));
        assert_eq!(names(s.path("Android/obb")), set(&[]));
        for answer in [
            fails(fs::metadata(&other)),
            fails(fs::read_dir(&other)),
            fails(fs::read(other.join("cart"))),
            fails(fs::write(other.join("new"), b"x")),
            fails(fs::remove_file(other.join("cart"))),
            fails(fs::rename(other.join("cart"), own.join("cart"))),
            fails(fs::metadata(s.path("Android/obb/com.example.shop"))),
        ] {
            assert_eq!(answer, Some(Errno::NOENT));
        }
        // Creating a folder does not reveal which apps exist.
        for name in ["com.example.shop", "com.example.none"] {
            assert_eq!(fails(fs::create_dir(data.join(name))), Some(Errno::ACCESS), "{name}");
        }
        // An app's own folder is an ordinary one.
        fs::create_dir_all(own.join("cache/deep")).unwrap();
        fs::write(own.join("cache/deep/file"), b"mine").unwrap();
        fs::rename(own.join("cache/deep/file"), own.join("file")).unwrap();
        assert_eq!(fs::read(own.join("file")).unwrap(), b"mine");
        fs::remove_dir_all(own.join("cache")).unwrap();
        // The path to it stays; the directories next to it are accessible to all.
        assert_eq!(fails(fs::rename(&data, s.path("Android/moved"))), Some(Errno::ROFS));
        assert_eq!(fails(fs::remove_dir(s.path("Android/obb"))), Some(Errno::ROFS));
        fs::write(s.path("Android/media/x"), b"x").unwrap();
        fs::write(s.path("notes"), b"x").unwrap();
    });
    User::new(SHOP).run(|| {
        assert_eq!(names(&data), set(&["com.example.shop"]));
        assert_eq!(fs::read(other.join("cart")).unwrap(), b"Android/data/com.example.shop/cart");
        assert_eq!(fails(fs::metadata(own.join("file"))), Some(Errno::NOENT));
        fs::write(s.path("Android/obb/com.example.shop/blob"), b"x").unwrap();
    });
    assert_eq!(names(&data), set(&["com.example.chat", "com.example.shop"]), "root sees all");
}

#[test]
fn only_the_gallery_sees_where_a_picture_was_taken() {
    let Some(s) = fixture("shared-storage.toml", &PHONE, &[]) else { return };
    let file = s.path("DCIM/a.jpg");
    let seen = |user: u32| User::new(user).run(|| fs::read(&file).unwrap());
    assert_eq!([GALLERY, 0].map(|user| seen(user) == picture()), [true; 2]);
    for user in [CHAT, SHOP] {
        let blanked = seen(user);
        assert!(!has_secret(&blanked) && blanked.len() == SIZE);
        let differ = blanked.iter().zip(picture()).filter(|(a, b)| **a != *b).count();
        assert!(differ < 64, "{differ} bytes differ");
    }
    User::new(CHAT).run(|| {
        assert_eq!(fails(write(&file)), Some(Errno::ACCESS), "blanks are not written back");
        // A picture that the app takes itself looks to it, once it is closed, as it looks to others.
        fs::write(s.path("DCIM/b.jpg"), picture()).unwrap();
        assert_eq!(fs::metadata(s.path("DCIM/b.jpg")).unwrap().len(), SIZE as u64);
        assert!(!has_secret(&fs::read(s.path("DCIM/b.jpg")).unwrap()));
        fs::remove_file(s.path("DCIM/b.jpg")).unwrap();
    });
    User::new(GALLERY).run(|| {
        write(&file).unwrap();
        fs::rename(&file, s.path("DCIM/c.jpg")).unwrap();
    });
    assert!(!User::new(SHOP).run(|| has_secret(&fs::read(s.path("DCIM/c.jpg")).unwrap())));
}

#[test]
fn a_project_is_written_to_in_one_folder() {
    let tree = [
        "src/",
        "src/main.rs",
        "src/.env",
        ".env",
        "secrets/",
        "secrets/key",
        "output/",
        "output/old",
        "output/.env",
    ];
    let Some(s) = fixture("project.toml", &tree, &[]) else { return };
    for user in [0, 1000] {
        User::new(user).run(|| {
            assert_eq!(names(s.mnt()), set(&["src", "output"]));
            assert_eq!(names(s.path("src")), set(&["main.rs"]));
            for name in [".env", "src/.env", "output/.env", "secrets", "secrets/key"] {
                assert_eq!(fails(fs::read(s.path(name))), Some(Errno::NOENT), "{name}");
                assert_eq!(fails(fs::metadata(s.path(name))), Some(Errno::NOENT), "{name}");
            }
            assert_eq!(fs::read(s.path("src/main.rs")).unwrap(), b"src/main.rs");
            for answer in [
                fails(write(s.path("src/main.rs"))),
                fails(fs::write(s.path("src/new"), b"x")),
                fails(fs::create_dir(s.path("dir"))),
                fails(fs::remove_file(s.path("src/main.rs"))),
                fails(fs::rename(s.path("src/main.rs"), s.path("output/main.rs"))),
                fails(fs::rename(s.path("output/old"), s.path("src/old"))),
            ] {
                assert_eq!(answer, Some(Errno::ROFS));
            }
            // The kernel refuses callers who are not the owner.
            let chmod = fails(fs::set_permissions(s.path("src"), fs::Permissions::from_mode(0o700)));
            assert_eq!(chmod, Some(if user == 0 { Errno::ROFS } else { Errno::PERM }));
            let out = s.path(format!("output/{user}"));
            fs::create_dir_all(out.join("a/b")).unwrap();
            fs::copy(s.path("src/main.rs"), out.join("a/copy")).unwrap();
            fs::rename(out.join("a/copy"), out.join("a/b/moved")).unwrap();
            assert_eq!(fs::read(out.join("a/b/moved")).unwrap(), b"src/main.rs");
            fs::remove_dir_all(&out).unwrap();
            assert_eq!(names(s.path("output")), set(&["old"]));
        });
    }
    assert_eq!(names(s.lower("")).len(), 4);
}

#[test]
fn guests_see_photos_without_the_place() {
    const GUESTS: u32 = 2000;
    let log = tempfile::tempdir().unwrap();
    let log = log.path().join("audit");
    let tree = ["a.jpg", "b.raw", "album/", "album/c.jpg", "album/d.raw", "album/text"];
    let Some(s) = fixture("photos.toml", &tree, &["--audit-log", log.to_str().unwrap()]) else { return };
    chown(s.lower("a.jpg"), Some(1001), Some(1001)).unwrap();
    for guest in [User::new(1001).gid(GUESTS), User::new(1001).groups(&[7, GUESTS])] {
        guest.run(|| {
            assert_eq!(names(s.mnt()), set(&["a.jpg", "album"]));
            assert_eq!(names(s.path("album")), set(&["c.jpg", "text"]));
            assert_eq!(fails(fs::read(s.path("album/d.raw"))), Some(Errno::NOENT));
            for name in ["a.jpg", "album/c.jpg"] {
                let seen = fs::read(s.path(name)).unwrap();
                assert!(seen.len() == SIZE && !has_secret(&seen), "{name}");
            }
            assert_eq!(fs::read(s.path("album/text")).unwrap(), b"album/text");
            for answer in [
                fails(write(s.path("a.jpg"))),
                fails(write(s.path("album/text"))),
                fails(fs::write(s.path("album/new"), b"x")),
                fails(fs::create_dir(s.path("dir"))),
                fails(fs::remove_file(s.path("a.jpg"))),
                fails(fs::rename(s.path("a.jpg"), s.path("e.jpg"))),
                fails(fs::set_permissions(s.path("a.jpg"), fs::Permissions::from_mode(0o600))),
            ] {
                assert_eq!(answer, Some(Errno::ACCESS));
            }
        });
    }
    let log_text = fs::read_to_string(&log).unwrap();
    let lines: Vec<serde_json::Value> =
        log_text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(
        lines.iter().any(|line| {
            line["rule"] == "without the place" && line["path"] == "/album/c.jpg" && line["uid"] == 1001
        }),
        "{log_text}"
    );
    User::new(1001).gid(1001).run(|| {
        assert_eq!(names(s.mnt()), set(&["a.jpg", "b.raw", "album"]));
        assert_eq!(fs::read(s.path("a.jpg")).unwrap(), picture());
        write(s.path("album/c.jpg")).unwrap();
        fs::write(s.path("album/new"), b"x").unwrap();
        fs::remove_file(s.path("album/d.raw")).unwrap();
    });
}
