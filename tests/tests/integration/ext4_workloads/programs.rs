//! Common programs in a mounted directory, and the kernel's view of the result.

use std::fs;
use std::path::Path;

use shunt_test_support::{needs_mount, needs_tools, requirement, sh};
use shunt_tests::image::Mount;
use shunt_tests::{Image, binary, metadata_tree};

/// Images that differ in features the programs rely on: extents or block maps, large or small blocks.
const KINDS: [&[&str]; 2] = [&["-b", "4096"], &["-t", "ext3", "-b", "1024", "-I", "256"]];

/// Runs some work through the mount, checks the image with e2fsck, and checks the result through the kernel's own mount.
fn does(mkfs: &[&str], work: impl FnOnce(&Path), look: impl FnOnce(&Path)) {
    let image = Image::make(mkfs, 512).unwrap();
    let mount = image.by_shunt(&["-o", "suid,dev"]);
    work(mount.at());
    end(&mount);
    drop(mount);
    image.check();
    match image.by_kernel("ro") {
        Ok(kernel) => look(kernel.at()),
        Err(why) => shunt_test_support::skip::kernel_cannot(&why),
    }
}

fn end(mount: &Mount) {
    mount.umount().ok();
}

/// Runs a script with the directory as `$1` and one next to it as `$2`.
fn script(at: &Path, aside: &Path, text: &str) -> String {
    sh(aside, &format!("set -- '{}' '{}'\n{text}", at.display(), aside.display())).ok()
}

#[test]
fn git_clones_collects_and_checks_out() {
    needs_mount!();
    needs_tools!("git");
    let repository = binary::root();
    requirement!(repository.join(".git").exists(), "the tests do not run from a git repository");
    let git = "git -c safe.directory='*' -c user.name=t -c user.email=t@t -c gc.auto=0";
    for kind in KINDS {
        let work = |at: &Path| {
            // Cloned through the transport, not with hard links.
            let text = format!(
                "{git} clone -q --no-local --no-tags file://{} \"$1\"/clone; cd \"$1\"/clone
                 {git} fsck --strict --no-dangling; test -z \"$({git} status --porcelain)\"
                 echo more >> Cargo.toml; {git} commit -qam more
                 {git} checkout -q HEAD~20; {git} checkout -q -; {git} gc -q --prune=now; {git} fsck
                 {git} worktree add -q ../second HEAD~1; {git} repack -qadf; rm -r .git/hooks
                 test -z \"$({git} status --porcelain)\"",
                repository.display()
            );
            script(at, Path::new("/"), &text);
        };
        let look = |at: &Path| {
            let clean = "cd \"$1\"/clone; GIT_OPTIONAL_LOCKS=0; export GIT_OPTIONAL_LOCKS; ";
            let text = format!("{clean} {git} fsck --strict --no-dangling; {git} diff --quiet HEAD");
            script(at, Path::new("/"), &text);
        };
        does(kind, work, look);
    }
}

#[test]
fn rsync_goes_there_and_back() {
    needs_mount!();
    needs_tools!("rsync", "setfacl", "setfattr");
    let aside = tempfile::tempdir().unwrap();
    metadata_tree::tree(aside.path(), "tree");
    for kind in KINDS {
        let same = "left=$(rsync -naHAXci tree/ \"$1\"/there/; rsync -naHAXci \"$1\"/there/ tree/)
                    test -z \"$left\" || { echo \"$left\"; exit 1; }
                    test \"$1\"/there/a/one -ef \"$1\"/there/a/b/hard; test $(stat -c %b \"$1\"/there/sparse) -lt 100";
        let there = "rsync -aHAXS tree/ \"$1\"/there; rsync -aHAXS \"$1\"/there/ back; rsync -aHAXS --delete back/ \"$1\"/there
                     left=$(rsync -naHAXci back/ tree/); test -z \"$left\"; rm -r back";
        let work = |at: &Path| {
            script(at, aside.path(), there);
            script(at, aside.path(), same);
            // Once more over existing files, with some modified and others removed.
            script(
                at,
                aside.path(),
                "cp -a tree other; rm other/a/b/file-1??; echo new >> other/random; touch -r tree/random other/random
                 rsync -aHAXS --delete --inplace --no-whole-file -c other/ \"$1\"/there
                 left=$(rsync -naHAXci other/ \"$1\"/there/); test -z \"$left\"; rm -r other
                 rsync -aHAXSc --delete tree/ \"$1\"/there",
            );
        };
        does(kind, work, |at| drop(script(at, aside.path(), same)));
    }
}

#[test]
fn tar_keeps_attributes() {
    needs_mount!();
    needs_tools!("tar", "setfacl", "setfattr");
    let aside = tempfile::tempdir().unwrap();
    metadata_tree::tree(aside.path(), "tree");
    let tar = "tar --xattrs --acls --numeric-owner -S";
    script(aside.path(), aside.path(), &format!("{tar} -cf 1.tar tree"));
    // Packed again in a fixed order, both listings are equal; and so are the contents.
    let look = |at: &Path| {
        let pack = "--sort=name --format=posix --pax-option=delete=atime,delete=ctime";
        let text = format!(
            "{tar} {pack} -cf want.tar tree; {tar} {pack} -cf have.tar -C \"$1\" tree
             for t in want have; do tar --xattrs --acls --full-time -tvvf $t.tar > $t.txt; done; diff want.txt have.txt
             {tar} --compare -f 1.tar -C \"$1\""
        );
        script(at, aside.path(), &text);
    };
    for kind in KINDS {
        let work = |at: &Path| {
            script(at, aside.path(), &format!("{tar} --xattrs-include='*' -xpf 1.tar -C \"$1\""));
            look(at);
        };
        does(kind, work, look);
    }
}

#[test]
fn holes_are_copied_dug_and_kept() {
    needs_mount!();
    needs_tools!("cp", "fallocate");
    let aside = tempfile::tempdir().unwrap();
    script(
        aside.path(),
        aside.path(),
        "truncate -s 30M holes; for at in 0 5 17 29; do
            dd if=/dev/urandom of=holes bs=64k count=3 seek=$((at * 16)) conv=notrunc status=none; done
         head -c 4M /dev/urandom > dense; dd if=/dev/zero of=dense bs=1M seek=1 count=2 conv=notrunc status=none",
    );
    let look = |at: &Path| {
        script(
            at,
            aside.path(),
            "cd \"$1\"; for f in holes copy never always back; do cmp $f \"$2\"/holes; done; cmp dense \"$2\"/dense
             units() { stat -c %b \"$1\"; }
             for f in holes copy always back; do test $(units $f) -lt 2500; done
             test $(units never) -ge 61440; test $(units dense) -lt 4200",
        );
    };
    let work = |at: &Path| {
        script(
            at,
            aside.path(),
            "cp --sparse=auto holes \"$1\"/holes; cd \"$1\"
             cp --sparse=always holes copy; cp --sparse=never holes never; cp --sparse=always never always
             cp --sparse=never holes back; fallocate -d back; cp \"$2\"/dense dense; fallocate -d dense; sync -f .",
        );
        look(at);
    };
    // With block maps the kernel cannot punch holes; `shunt` can.
    KINDS.into_iter().for_each(|kind| does(kind, work, look));
}

#[test]
fn a_project_in_c_is_built() {
    needs_mount!();
    needs_tools!("cc", "make", "ar");
    let aside = tempfile::tempdir().unwrap();
    project(aside.path());
    for kind in KINDS {
        let work = |at: &Path| {
            let text = "cp -r project \"$1\"; cd \"$1\"/project; make -s -j4; ./prog | grep -qx 46; make -q
                        sleep 0.02; touch f3.c; make -q && exit 1; make | grep -c '^cc -O1' | grep -qx 1
                        make -s clean; make -s -j4 prog; ./prog | grep -qx 46";
            script(at, aside.path(), text);
        };
        does(kind, work, |at| {
            drop(script(at, aside.path(), "cd \"$1\"/project; ./prog | grep -qx 46; make -q"))
        });
    }
}

/// Creates sources, a library built from some of them, and a program that uses the library.
fn project(within: &Path) {
    let at = within.join("project");
    fs::create_dir(&at).unwrap();
    let makefile = "prog: main.o libf.a\n\tcc -g -o $@ main.o -L. -lf\n\
                    libf.a: $(patsubst %.c,%.o,$(wildcard f*.c))\n\tar rcs $@ $^\n\
                    %.o: %.c all.h\n\tcc -O1 -g -c -o $@ $<\nclean:\n\trm -f prog *.o *.a\n";
    fs::write(at.join("Makefile"), makefile).unwrap();
    let (mut header, mut sums) = (String::new(), String::new());
    for n in 0..24 {
        header.push_str(&format!("int f{n}(int);\n"));
        sums.push_str(&format!("sum += f{n}({});\n", n % 4));
        let source = format!("#include \"all.h\"\nint f{n}(int x) {{ return x + {}; }}\n", n / 12);
        fs::write(at.join(format!("f{n}.c")), source).unwrap();
    }
    fs::write(at.join("all.h"), header).unwrap();
    let main = format!(
        "#include \"all.h\"\n#include <stdio.h>\nint main(void) {{ int sum = -2;\n{sums}printf(\"%d\\n\", sum);}}\n"
    );
    fs::write(at.join("main.c"), main).unwrap();
}

/// Incremental compilation relies on locks, hard links, mappings and timestamps.
#[test]
fn a_crate_is_built() {
    needs_mount!();
    needs_tools!("cargo");
    let work = |at: &Path| {
        let cargo = "CARGO_TARGET_DIR=\"$1\"/target CARGO_INCREMENTAL=1 cargo";
        let text = format!(
            "cd \"$1\"; {cargo} init -q --vcs none --name tiny .; {cargo} build -q --offline
             {cargo} run -q --offline | grep -qx 'Hello, world!'
             sed -i s/world/again/ src/main.rs; {cargo} run -q --offline | grep -qx 'Hello, again!'
             {cargo} build --offline 2>&1 | grep -q Compiling && exit 1
             {cargo} test -q --offline >/dev/null"
        );
        script(at, at, &text);
    };
    let look = |at: &Path| drop(script(at, at, "target/debug/tiny | grep -qx 'Hello, again!'"));
    does(KINDS[0], work, look);
}
