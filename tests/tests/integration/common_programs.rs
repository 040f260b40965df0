//! Common programs in a mirrored directory.

use std::fs;
use std::process::Command;

use shunt_test_support::{needs_tools, requirement, run, run_for, sh};
use shunt_tests::{Fixture, binary, metadata_tree};

shunt_tests::behaviours! { everywhere:
    git_clone_and_fsck, rsync_there_and_back, tar_round_trip, copies_keep_everything, find_and_du, a_small_compile,
    remove_a_tree, shell_redirections, sqlite_like_journal,
}

fn git_clone_and_fsck(s: &Fixture) {
    needs_tools!("git");
    let repository = binary::root();
    requirement!(repository.join(".git").exists(), "the tests do not run from a git repository");
    let from = repository.display();
    let git = "git -c safe.directory='*' -c user.name=t -c user.email=t@t -c gc.auto=0";
    // Cloned through the transport, not with hard links.
    sh(s.mnt(), &format!("{git} clone -q --no-local --no-tags file://{from} clone")).ok();
    let script = format!(
        "cd clone; {git} fsck --strict --no-dangling; test -z \"$({git} status --porcelain)\"
         echo more >> Cargo.toml; {git} commit -qam more; {git} checkout -q HEAD~1; {git} checkout -q -
         {git} gc -q --prune=now; {git} fsck; test -z \"$({git} status --porcelain)\""
    );
    sh(s.mnt(), &script).ok();
    // The source contains the same tree: git finds no problem there.
    sh(s.src(), &format!("cd clone; {git} fsck; {git} diff --quiet")).ok();
}

fn rsync_there_and_back(s: &Fixture) {
    needs_tools!("rsync", "setfacl", "setfattr");
    metadata_tree::tree(s.aside(), "tree");
    let (aside, mnt) = (s.aside().display(), s.mnt().display());
    sh(s.aside(), &format!("rsync -aHAXS tree/ {mnt}/there && rsync -aHAXS {mnt}/there/ back")).ok();
    // rsync has nothing left to copy, in either direction.
    for pair in
        [format!("tree/ {mnt}/there/"), format!("{mnt}/there/ {aside}/tree/"), "back/ tree/".to_owned()]
    {
        let left = sh(s.aside(), &format!("rsync -naHAXc --itemize-changes {pair}")).ok();
        assert_eq!(left, "", "{pair}");
    }
    sh(s.aside(), &format!("diff -r --no-dereference -x pipe -x dev tree {mnt}/there")).ok();
    let (inner, lower) = (s.path("there"), s.lower("there"));
    let left = run(Command::new("rsync").args(["-naHAXci"]).arg(inner.join("")).arg(lower.join(""))).ok();
    assert_eq!(left, "");
}

fn tar_round_trip(s: &Fixture) {
    needs_tools!("tar", "setfacl", "setfattr");
    metadata_tree::tree(s.aside(), "tree");
    let mnt = s.mnt().display();
    let tar = "tar --xattrs --acls --numeric-owner -S";
    sh(s.aside(), &format!("{tar} -cf 1.tar tree && {tar} --xattrs-include='*' -xpf 1.tar -C {mnt}")).ok();
    // Packed again in a fixed order, both listings are equal; and so are the contents.
    let pack = |dir: &str, out: &str| {
        sh(s.aside(), &format!("{tar} --sort=name --format=posix --pax-option=delete=atime,delete=ctime -cf {out} -C {dir} tree")).ok()
    };
    pack(".", "want.tar");
    pack(&mnt.to_string(), "have.tar");
    sh(s.aside(), "for t in want have; do tar --xattrs --acls --full-time -tvvf $t.tar > $t.txt; done; diff want.txt have.txt").ok();
    sh(s.aside(), &format!("{tar} --compare -f 1.tar -C {mnt}")).ok();
}

fn copies_keep_everything(s: &Fixture) {
    needs_tools!("setfacl", "setfattr", "rsync");
    metadata_tree::tree(s.aside(), "tree");
    let mnt = s.mnt().display();
    sh(s.aside(), &format!("cp -a tree {mnt}/one && cp -a {mnt}/one {mnt}/two && mv {mnt}/two {mnt}/three && cp -a {mnt}/three back")).ok();
    let left = sh(s.aside(), "rsync -naHAXci back/ tree/").ok();
    assert_eq!(left, "");
    let links = sh(s.mnt(), "stat -c %h three/a/one; test three/a/one -ef three/a/b/hard && echo same").ok();
    assert_eq!(links, "2\nsame\n", "hard links are seen");
}

fn find_and_du(s: &Fixture) {
    sh(s.mnt(), "mkdir -p a/b/c; for n in 1 2 3 4 5; do head -c 100000 /dev/zero > a/b/f$n; done; ln a/b/f1 a/b/c/again").ok();
    let format = "-printf '%P %y %s %m %U %G %n %i %l %b %T@\\n'";
    let list = |dir| sh(dir, &format!("find . {format} | sort")).ok();
    assert_eq!(list(s.mnt()), list(s.src()));
    for flags in ["-s", "-sb", "-s --inodes"] {
        let du = |dir| sh(dir, &format!("du {flags} a | cut -f1")).ok();
        assert_eq!(du(s.mnt()), du(s.src()), "du {flags}: hard links count once");
    }
    assert_eq!(sh(s.mnt(), "find . -samefile a/b/f1 | wc -l").ok().trim(), "2");
    assert_eq!(sh(s.mnt(), "find . -links 2 -type f | wc -l").ok().trim(), "2");
}

fn a_small_compile(s: &Fixture) {
    needs_tools!("cc", "make");
    let mut makefile = String::from(
        "prog: $(patsubst %.c,%.o,$(wildcard *.c))\n\tcc -o $@ $^\n%.o: %.c all.h\n\tcc -O1 -c -o $@ $<\n",
    );
    makefile.push_str("clean:\n\trm -f prog *.o\n");
    fs::write(s.path("Makefile"), makefile).unwrap();
    let mut header = String::new();
    let mut main = String::from("#include \"all.h\"\n#include <stdio.h>\nint main(void) { int sum = 0;\n");
    for n in 0..12 {
        header.push_str(&format!("int f{n}(int);\n"));
        main.push_str(&format!("sum += f{n}({n});\n"));
        fs::write(
            s.path(format!("f{n}.c")),
            format!("#include \"all.h\"\nint f{n}(int x) {{ return x * {n}; }}\n"),
        )
        .unwrap();
    }
    main.push_str("printf(\"%d\\n\", sum); return 0; }\n");
    fs::write(s.path("all.h"), header).unwrap();
    fs::write(s.path("main.c"), main).unwrap();
    sh(s.mnt(), "make -s -j2").ok();
    assert_eq!(sh(s.mnt(), "./prog").ok(), "506\n");
    assert!(sh(s.mnt(), "make -j2").ok().contains("up to date"), "times are what make expects");
    sh(s.mnt(), "sleep 0.02; touch f3.c; make -s -q && exit 1; make -j2 | grep -c '^cc -O1' | grep -x 1; make -s clean").ok();
}

fn remove_a_tree(s: &Fixture) {
    sh(s.mnt(), "for a in $(seq 20); do mkdir -p t/$a/x/y; for b in $(seq 30); do : > t/$a/x/$b; done; done; rm -r t; test ! -e t").ok();
    assert_eq!(fs::read_dir(s.src()).unwrap().count(), 0);
}

fn shell_redirections(s: &Fixture) {
    let script = "echo one > f; echo two >> f; tail -c +1 < f; exec 3<> f; read -r line <&3; echo \"$line\"; echo X >&3; cat f
                  set -C; (echo no > f) 2>/dev/null && exit 1; sed -i s/one/uno/ f; cat f; mv f 'a b'; cat 'a b' | wc -l";
    let bare = tempfile::tempdir().unwrap();
    assert_eq!(sh(s.mnt(), script).ok(), sh(bare.path(), script).ok());
}

/// The pattern of a database: a journal is created, synced and removed around every change.
fn sqlite_like_journal(s: &Fixture) {
    use std::os::unix::fs::FileExt as _;
    let db = fs::File::options().read(true).write(true).create_new(true).open(s.path("db")).unwrap();
    let dir = fs::File::open(s.mnt()).unwrap();
    for n in 0..50u64 {
        let journal = fs::File::create_new(s.path("db-journal")).unwrap();
        journal.write_all_at(&n.to_le_bytes(), 0).unwrap();
        journal.sync_all().unwrap();
        dir.sync_all().unwrap();
        db.write_all_at(&n.to_le_bytes(), n % 7 * 4096).unwrap();
        db.sync_data().unwrap();
        fs::remove_file(s.path("db-journal")).unwrap();
    }
    let mut last = [0; 8];
    db.read_exact_at(&mut last, 0).unwrap();
    assert_eq!(u64::from_le_bytes(last), 49);
    assert!(!s.lower("db-journal").exists());
    // `sync -f`, as used by backup programs.
    run_for(20, Command::new("sync").arg("-f").arg(s.path("db"))).ok();
}
