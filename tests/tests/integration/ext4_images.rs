//! `shunt ext4 info`, `ls`, `cat`, `extents` and `extract`: access to an image without a mount.

use std::fs;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt, lchown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use shunt_test_support::{needs_tools, run};
use shunt_tests::binary;
use tempfile::TempDir;

struct Image {
    dir: TempDir,
}

impl Image {
    /// Prepares an empty tree.
    fn empty() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("tree")).unwrap();
        Self { dir }
    }

    fn new() -> Self {
        let image = Self::empty();
        let tree = image.tree();
        fs::create_dir_all(tree.join("a/b")).unwrap();
        fs::write(tree.join("a/b/deep"), "deep\n").unwrap();
        fs::write(tree.join("large"), vec![7; 3 << 20]).unwrap();
        fs::hard_link(tree.join("large"), tree.join("a/other")).unwrap();
        symlink("../b/deep", tree.join("a/link")).unwrap();
        let sparse = fs::File::create(tree.join("sparse")).unwrap();
        sparse.set_len(50 << 20).unwrap();
        sparse.write_all_at(b"in the middle", 25 << 20).unwrap();
        fs::set_permissions(tree.join("a/b/deep"), PermissionsExt::from_mode(0o640)).unwrap();
        fs::File::options()
            .write(true)
            .open(tree.join("a/b/deep"))
            .unwrap()
            .set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000))
            .unwrap();
        image.make();
        image
    }

    /// Makes the image from the tree.
    fn make(&self) {
        let mut mkfs = Command::new("mkfs.ext4");
        mkfs.args(["-q", "-F", "-L", "a label", "-d"]).arg(self.tree()).arg(self.image()).arg("64M");
        run(&mut mkfs).ok();
    }

    fn tree(&self) -> PathBuf {
        self.dir.path().join("tree")
    }

    fn image(&self) -> PathBuf {
        self.dir.path().join("image")
    }

    fn ask(&self, command: &str, rest: &[&str]) -> shunt_test_support::cmd::Ran {
        run(binary::command(&["ext4", command]).arg(self.image()).args(rest).current_dir(self.dir.path()))
    }
}

#[test]
fn an_image_is_described() {
    needs_tools!("mkfs.ext4");
    let image = Image::new();
    let info: Value = serde_json::from_str(&image.ask("info", &["--json"]).ok()).unwrap();
    assert_eq!(info["kind"], "ext4");
    assert_eq!(info["label"], "a label");
    assert_eq!(info["clean"], true);
    assert_eq!(info["blocks"].as_u64().unwrap() * info["block_size"].as_u64().unwrap(), 64 << 20);
    assert!(info["features"].as_array().unwrap().contains(&"extent".into()));
    assert!(image.ask("info", &[]).ok().contains("a label"));
}

#[test]
fn files_are_listed_and_shown() {
    needs_tools!("mkfs.ext4");
    let image = Image::new();
    let names = image.ask("ls", &[]).ok();
    assert_eq!(names.lines().collect::<Vec<_>>(), ["a", "large", "lost+found", "sparse"]);
    let long = image.ask("ls", &["-l", "/a"]).ok();
    assert!(long.contains("link -> ../b/deep"), "{long}");
    assert!(image.ask("ls", &["-l", "/a/b"]).ok().contains("2001-09-09 01:46 deep"));
    assert_eq!(image.ask("cat", &["/a/b/deep"]).ok(), "deep\n");
    let missing = image.ask("cat", &["/a/none"]);
    assert_eq!(missing.err, "shunt: /a/none in the image: no such file or directory\n");
}

#[test]
fn extents_are_those_of_debugfs() {
    needs_tools!("mkfs.ext4", "debugfs");
    let image = Image::new();
    let extents: Value = serde_json::from_str(&image.ask("extents", &["/sparse", "--json"]).ok()).unwrap();
    let extents = extents.as_array().unwrap();
    assert!(!extents.is_empty());
    for extent in extents {
        let logical = extent["logical"].as_u64().unwrap();
        let bmap = format!("bmap /sparse {logical}");
        let theirs = run(Command::new("debugfs").args(["-R", &bmap]).arg(image.image())).ok();
        assert_eq!(theirs.trim().parse::<u64>().unwrap(), extent["physical"].as_u64().unwrap());
    }
}

#[test]
fn a_tree_comes_out_as_it_went_in() {
    needs_tools!("mkfs.ext4", "diff");
    let image = Image::new();
    image.ask("extract", &["/", "out"]).ok();
    let out = image.dir.path().join("out");
    fs::remove_dir(out.join("lost+found")).unwrap();
    run(Command::new("diff").args(["-r", "--no-dereference"]).arg(image.tree()).arg(&out)).ok();
    let stat = |path: &Path| fs::symlink_metadata(path).unwrap();
    for name in ["a", "a/b/deep", "large", "sparse", "a/link"] {
        let (theirs, ours) = (stat(&image.tree().join(name)), stat(&out.join(name)));
        assert_eq!((theirs.mode(), theirs.mtime()), (ours.mode(), ours.mtime()), "{name}");
    }
    assert_eq!(stat(&out.join("large")).ino(), stat(&out.join("a/other")).ino());
    assert!(stat(&out.join("sparse")).blocks() < 1000, "holes stay holes");
    // Nothing is overwritten, and no symlink leads elsewhere.
    let again = image.ask("extract", &["/a/b/deep", "out/large"]);
    assert!(!again.success() && again.err.contains("File exists"), "{again:?}");
    assert_eq!(stat(&out.join("large")).len(), 3 << 20);
}

/// Owners, modes, times and extended attributes, also of special files; and file capabilities, which a change of owner removes.
#[test]
fn root_gets_all_attributes() {
    needs_tools!("mkfs.ext4", "mkfifo");
    let image = Image::empty();
    let tree = image.tree();
    let time = rustix::fs::Timespec { tv_sec: 1_000_000_000, tv_nsec: 0 };
    let times = rustix::fs::Timestamps { last_access: time, last_modification: time };
    // The value that setcap(8) writes for `cap_net_raw=ep`.
    let capability: Vec<u8> =
        [0x0200_0001_u32, 1 << 13, 0, 0, 0].into_iter().flat_map(u32::to_le_bytes).collect();
    fs::write(tree.join("program"), "x").unwrap();
    run(Command::new("mkfifo").arg(tree.join("pipe"))).ok();
    drop(std::os::unix::net::UnixListener::bind(tree.join("socket")).unwrap());
    symlink("program", tree.join("link")).unwrap();
    let mut names = vec!["program", "pipe", "socket", "link"];
    let device = run(Command::new("mknod").arg(tree.join("device")).args(["c", "1", "3"]));
    names.extend(device.success().then_some("device"));
    for (n, name) in names.iter().enumerate() {
        let path = tree.join(name);
        lchown(&path, Some(1000 + n as u32), Some(2000 + n as u32)).expect("chown: needs root");
        if *name != "link" {
            fs::set_permissions(&path, PermissionsExt::from_mode(0o2751)).unwrap();
        }
        rustix::fs::utimensat(rustix::fs::CWD, &path, &times, rustix::fs::AtFlags::SYMLINK_NOFOLLOW).unwrap();
    }
    let program = tree.join("program");
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(&program, "security.capability", &capability, flags).unwrap();
    image.make();
    image.ask("extract", &["/", "out"]).ok();
    let (out, mut value) = (image.dir.path().join("out"), [0; 64]);
    for name in &names {
        // Extracted into a directory of any owner, and below a directory of its own.
        image.ask("extract", &[&format!("/{name}")]).ok();
        for made in [out.join(name), image.dir.path().join(name)] {
            let stat = |path: &Path| {
                let is = fs::symlink_metadata(path).unwrap();
                (is.mode(), is.uid(), is.gid(), is.mtime(), is.rdev())
            };
            assert_eq!(stat(&made), stat(&tree.join(name)), "{}", made.display());
            if *name == "program" {
                let length = rustix::fs::getxattr(&made, "security.capability", &mut value).unwrap();
                assert_eq!(value[..length], capability);
            }
        }
    }
    let left = fs::read_dir(image.dir.path()).unwrap().count();
    assert_eq!(left, names.len() + 3, "nothing else is left beside tree, image and out");
}

#[test]
fn not_a_byte_of_the_image_changes() {
    needs_tools!("mkfs.ext4");
    let image = Image::new();
    let before = fs::read(image.image()).unwrap();
    for (command, rest) in [("info", &[][..]), ("ls", &[]), ("cat", &["/large"]), ("extract", &["/", "o"])] {
        image.ask(command, rest).ok();
    }
    assert!(fs::read(image.image()).unwrap() == before);
}

#[test]
fn file_without_image_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x");
    let ask = |content: &[u8]| {
        fs::write(&path, content).unwrap();
        run(binary::command(&["ext4", "info"]).arg(&path)).err
    };
    let start = format!("shunt: cannot read {}: ", path.display());
    let no = "not an ext2, ext3 or ext4 file system: it looks like";
    assert_eq!(ask(b""), format!("{start}{no} an empty file\n"));
    assert_eq!(ask(&[b"QFI\xfb".as_slice(), &[1; 9000]].concat()).lines().count(), 1);
    assert_eq!(ask(&[0; 9000]), format!("{start}{no} zeros\n"));
}

/// As in a system's tree, where most paths contain symlinks.
#[test]
fn links_within_paths_are_followed_in_the_image_alone() {
    needs_tools!("mkfs.ext4");
    let image = Image::empty();
    let tree = image.tree();
    fs::create_dir_all(tree.join("usr/lib/deep")).unwrap();
    fs::create_dir(tree.join("etc")).unwrap();
    fs::write(tree.join("usr/lib/os-release"), "NAME=test\n").unwrap();
    fs::write(tree.join("usr/lib/deep/file"), "deep\n").unwrap();
    symlink("../usr/lib/os-release", tree.join("etc/os-release")).unwrap();
    symlink("usr/lib", tree.join("lib")).unwrap();
    symlink("/lib/deep", tree.join("etc/absolute")).unwrap();
    symlink("../../../../../../usr/lib/os-release", tree.join("etc/far")).unwrap();
    symlink("/etc/passwd", tree.join("etc/passwd")).unwrap();
    symlink("loop", tree.join("loop")).unwrap();
    symlink("usr/lib/os-release/", tree.join("slash")).unwrap();
    image.make();
    for path in ["/etc/os-release", "/etc/far", "/lib/../lib/./os-release", "/etc/../../usr/lib/os-release"] {
        assert_eq!(image.ask("cat", &[path]).ok(), "NAME=test\n", "{path}");
    }
    assert_eq!(image.ask("cat", &["/etc/absolute/file"]).ok(), "deep\n");
    assert_eq!(image.ask("ls", &["/lib"]).ok(), "deep\nos-release\n");
    assert!(image.ask("ls", &["-l", "/lib"]).ok().contains("lib -> usr/lib"));
    assert_eq!(image.ask("ls", &["-l", "/lib/"]).ok().lines().count(), 2);
    // Not the file of the host.
    assert!(image.ask("cat", &["/etc/passwd"]).fails().contains("symbolic links"));
    assert!(image.ask("cat", &["/loop"]).fails().contains("symbolic links"));
    assert!(image.ask("cat", &["/slash/x"]).fails().contains("not a directory"));
    image.ask("extract", &["/lib/deep", "out"]).ok();
    assert_eq!(fs::read_to_string(image.dir.path().join("out/file")).unwrap(), "deep\n");
    // A symlink as the last component is extracted as such.
    image.ask("extract", &["/etc/os-release", "link"]).ok();
    assert_eq!(fs::read_link(image.dir.path().join("link")).unwrap(), Path::new("../usr/lib/os-release"));
}

/// Many files share the same blocks: a small image that would fill a disk.
#[test]
fn shared_blocks_fill_no_disk() {
    needs_tools!("mkfs.ext4", "debugfs");
    let image = Image::empty();
    fs::write(image.dir.path().join("content"), vec![7; 12 << 10]).unwrap();
    let mut mkfs = Command::new("mkfs.ext4");
    run(mkfs
        .args(["-q", "-F", "-b", "1024", "-O", "^extent,^64bit,^has_journal"])
        .arg(image.image())
        .arg("2M"))
    .ok();
    let file = image.image();
    let debugfs = |words: &str| run(Command::new("debugfs").args(["-w", "-R", words]).arg(&file)).ok();
    debugfs(&format!("write {}/content first", image.dir.path().display()));
    let blocks = debugfs("blocks first");
    let blocks: Vec<&str> = blocks.split_whitespace().collect();
    assert_eq!(blocks.len(), 12);
    let mut script = String::new();
    fs::write(image.dir.path().join("empty"), "").unwrap();
    for n in 0..200 {
        script += &format!("write {}/empty f{n}\nsif f{n} size {}\n", image.dir.path().display(), 12 << 10);
        for (at, block) in blocks.iter().enumerate() {
            script += &format!("sif f{n} block[{at}] {block}\n");
        }
    }
    fs::write(image.dir.path().join("script"), script).unwrap();
    run(Command::new("debugfs").arg("-w").arg("-f").arg(image.dir.path().join("script")).arg(&file)).ok();
    assert_eq!(image.ask("cat", &["/f199"]).ok().len(), 12 << 10);
    let err = image.ask("extract", &["/", "out"]).fails();
    assert!(err.contains("files share blocks") && err.contains("2.0 MiB"), "{err}");
    image.ask("extract", &["--max-size", "1G", "/", "all"]).ok();
    assert_eq!(fs::read_dir(image.dir.path().join("all")).unwrap().count(), 202);
    assert!(image.ask("extract", &["--max-size", "8K", "/first", "few"]).fails().contains("8.0 KiB"));
}
