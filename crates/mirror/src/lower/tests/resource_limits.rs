//! Resource use per node, and the boundary of the source.

use super::*;

#[test]
fn many_nodes_cost_few_descriptors_and_little_memory() {
    let shown = Shown::new();
    if !shown.lower.has_handles() {
        eprintln!("skipped: this file system has no file handles");
        return;
    }
    let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let before = descriptors();
    let nodes = 20_000;
    for number in 0..nodes / 10 {
        let dir = CString::new(format!("d{number}")).unwrap();
        let dir = shown.lower.mkdir(NodeId::ROOT, component(&dir), 0o755, 0, Caller::ROOT).unwrap();
        for number in 1..10 {
            let name = CString::new(format!("f{number}")).unwrap();
            shown.lower.mknod(dir.id, component(&name), 0o100644, (0, 0), 0, Caller::ROOT).unwrap();
        }
    }
    let memory = shown.lower.memory();
    assert_eq!(memory.nodes, nodes);
    // Other tests run concurrently.
    assert!(descriptors() < before + shown.lower.limits.dirs + 200);
    let per_node = memory.node_bytes / nodes;
    println!("{per_node} bytes per node");
    assert!(per_node <= 110, "{per_node}");
}

#[test]
fn inodes_are_held_by_descriptor_where_handles_do_not_work() {
    if !Path::new("/proc/self").exists() {
        return;
    }
    // FAT and FUSE are tested on mounts; this test uses a file system without handles.
    let lower = Lower::open(LowerOptions { source: "/proc/self".into(), ..LowerOptions::default() }).unwrap();
    if lower.has_handles() {
        eprintln!("skipped: /proc has file handles");
        return;
    }
    assert!(lower.node_limit().is_some());
    let found = lower.lookup(NodeId::ROOT, component(c"status")).unwrap();
    assert!(lower.stat(found.id, None).is_ok());
    let opening = lower.open_file(found.id, 0, false, USER).unwrap();
    let mut bytes = [0; 5];
    rustix::io::pread(opening.file.as_fd(), &mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"Name:");
    assert_eq!(lower.lookup(NodeId::ROOT, component(c"status")).unwrap().id, found.id);
    // A magic link is a link: it is not followed out of the source.
    let root = lower.lookup(NodeId::ROOT, component(c"root")).unwrap();
    assert_eq!(lower.lookup(root.id, component(c"etc")).unwrap_err(), Errno::NOTDIR);
}

#[test]
fn later_mount_is_not_visible() {
    if needs_root() {
        return;
    }
    let shown = Shown::new();
    if shown.lower.attached().is_some() {
        eprintln!("skipped: the mirror has no private view of the mounts");
        return;
    }
    std::fs::write(shown.path("f"), "").unwrap();
    // A private mount namespace, so that nothing stays mounted if the test fails.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            sys::unshare_fs().unwrap();
            // SAFETY: this thread's own mount namespace; no descriptor changes its meaning.
            unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS) }.unwrap();
            let private =
                rustix::mount::MountPropagationFlags::PRIVATE | rustix::mount::MountPropagationFlags::REC;
            rustix::mount::mount_change("/", private).unwrap();
            let flags = rustix::mount::MountFlags::empty();
            rustix::mount::mount("tmpfs", shown.dir.path(), "tmpfs", flags, None::<&CStr>).unwrap();
            assert!(!shown.path("f").exists());
            assert!(shown.look(c"f").is_ok(), "the mirror still shows the original source");
        });
    });
}
