//! The store is replaced by a list of names.

use std::sync::Arc;

use super::*;

#[derive(Debug, Default, Clone)]
struct Names(Arc<Mutex<Vec<String>>>);

impl DescriptorStore for Names {
    fn store(&self, name: &str, _: BorrowedFd<'_>) -> io::Result<()> {
        self.0.lock().push(name.to_owned());
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.0.lock().retain(|known| known != name);
        Ok(())
    }
}

impl Names {
    fn all(&self) -> Vec<String> {
        self.0.lock().clone()
    }
}

fn null() -> OwnedFd {
    std::fs::File::open("/dev/null").unwrap().into()
}

fn link(names: &Names) -> ManagedLink {
    ManagedLink::new(Box::new(names.clone()), vec!["shunt".into()]).unwrap()
}

#[test]
fn names_come_back() {
    for (_, class) in CLASSES {
        for id in [0, 17, u64::MAX] {
            let key = Key { class, id };
            assert_eq!(parse(&name(key, 3)), Some((key, 3)));
        }
    }
    for other in ["", "d", "d0", "x0.0", "dg.0", "d0.g", "stored", "record", "d11111111111111111.0"] {
        assert_eq!(parse(other), None, "{other}");
    }
}

#[test]
fn a_replaced_descriptor_is_stored_before_the_old_one_is_removed() {
    let (names, null) = (Names::default(), null());
    let link = link(&names);
    let key = Key { class: DescriptorClass::FileSystem, id: 4 };
    link.apply(&Message::Store(key), Some(null.as_fd())).unwrap();
    link.apply(&Message::Store(key), Some(null.as_fd())).unwrap();
    assert_eq!(names.all(), ["f4.1"]);
    link.apply(&Message::Remove(key), None).unwrap();
    assert!(names.all().is_empty());
}

#[test]
fn the_newest_of_a_key_counts() {
    let passed = ["f4.1", "f4.0", "LISTEN", "record", "d0.0"].map(|name| (name.to_owned(), null()));
    let newest = std::os::fd::AsRawFd::as_raw_fd(&passed[0].1);
    let content = StoreContent::new(passed.into());
    let key = Key { class: DescriptorClass::FileSystem, id: 4 };
    assert_eq!(content.generations[&key], 1);
    assert_eq!(std::os::fd::AsRawFd::as_raw_fd(&content.descriptors[&key]), newest);
    assert_eq!(content.names, ["f4.1", "f4.0", "record", "d0.0"]);
    assert!(content.record.is_some());
}

#[test]
fn unlinked_files_are_stored_by_a_planned_restart_only() {
    let (names, null) = (Names::default(), null());
    let link = link(&names);
    let file = Key { class: DescriptorClass::FileSystem, id: FIRST_DEFERRED_ID };
    let node = Key { class: DescriptorClass::Node, id: 9 };
    let gone = Key { class: DescriptorClass::Node, id: 10 };
    for key in [file, node, gone] {
        link.apply(&Message::Store(key), Some(null.as_fd())).unwrap();
    }
    link.apply(&Message::Remove(gone), None).unwrap();
    assert!(names.all().is_empty());
    link.begin_restart().unwrap();
    link.finish_restart().unwrap();
    assert_eq!(names.all(), ["f100000000.0", "n9.0"]);
    // A late one is not lost.
    link.apply(&Message::Store(gone), Some(null.as_fd())).unwrap();
    assert_eq!(names.all().last().unwrap(), "na.0");
}

#[test]
fn the_record_is_there_from_arm_to_release() {
    let names = Names::default();
    let link = link(&names);
    link.apply(&Message::Arm, None).unwrap();
    assert_eq!(names.all(), [RECORD]);
    link.apply(&Message::Release { token: 0 }, None).unwrap();
    assert!(names.all().is_empty());
}
