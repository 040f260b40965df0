//! Tests of notifications: sent after the reply, order, merging, overflow, and the effect of waiting.

use std::future::Future;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use shunt_fuse::*;
use shunt_fuse_mock::{Event, Notification, Served};

use crate::common::{attributes, until};

const REPLY_TIMEOUT: Duration = Duration::from_secs(10);

/// UNLINK invalidates its own name and tries to wait for that in both ways; RMDIR invalidates, does not wait, and takes a while
/// to reply.
#[derive(Default)]
struct NotifyingFs {
    waited: Mutex<Vec<Result<(), Errno>>>,
}

impl FileSystem for NotifyingFs {
    async fn getattr(
        &self,
        _: &Request<'_>,
        node: NodeId,
        _: Option<FileHandle>,
    ) -> Result<(Attributes, Expiry), Errno> {
        Ok((attributes(node), Expiry::FOREVER))
    }

    async fn unlink(&self, request: &Request<'_>, parent: NodeId, name: Name<'_>) -> Result<(), Errno> {
        let completion = request.session().caches().invalidate_entry(parent, name.as_bytes());
        let blocking = completion.wait();
        let waiting = completion.await;
        self.waited.lock().extend([blocking, waiting]);
        Ok(())
    }

    async fn rmdir(&self, request: &Request<'_>, parent: NodeId, name: Name<'_>) -> Result<(), Errno> {
        for _ in 0..3 {
            request.session().caches().invalidate_entry(parent, name.as_bytes());
        }
        std::thread::sleep(Duration::from_millis(2));
        Ok(())
    }
}

fn serve() -> Served<NotifyingFs> {
    Served::new(NotifyingFs::default(), Config::new(Profile::Passthrough))
}

fn entry(parent: u64, name: &str) -> Notification {
    Notification::InvalEntry { parent, name: name.into(), flags: 0 }
}

fn notifications(events: &[Event]) -> usize {
    events.iter().filter(|event| matches!(event, Event::Notification(_))).count()
}

#[test]
fn waiting_inside_a_handler_is_an_error_and_the_notification_comes_after_the_reply() {
    let kernel = serve();
    kernel.unlink(1, "name").unwrap();
    assert!(kernel.wait_events(REPLY_TIMEOUT, |events| notifications(events) == 1));
    let events = kernel.take_events();
    assert!(matches!(events[..], [Event::Reply { error: 0, .. }, Event::Notification(_)]), "{events:?}");
    assert_eq!(*kernel.fs().waited.lock(), [Err(Errno::DEADLK), Err(Errno::DEADLK)]);
    kernel.finish();
}

#[test]
fn each_notification_of_many_handlers_follows_its_own_reply() {
    let kernel = serve();
    let name = |i: u64| std::ffi::CString::new(format!("name-{i}")).unwrap();
    let pending: Vec<_> = (0..200)
        .map(|i| {
            let name = name(i);
            kernel.submit(1 + i % 7, &shunt_fuse_abi::Operation::Rmdir { name: Name::new(&name).unwrap() })
        })
        .collect();
    let uniques: Vec<_> = pending.iter().map(|pending| pending.unique()).collect();
    pending.into_iter().for_each(|pending| assert!(pending.wait().is_ok()));
    assert!(kernel.wait_events(REPLY_TIMEOUT, |events| {
        (0..200).all(|i| events.contains(&Event::Notification(entry(1 + i % 7, name(i).to_str().unwrap()))))
    }));
    let events = kernel.take_events();
    for (i, unique) in (0..200).zip(uniques) {
        let notification = Event::Notification(entry(1 + i % 7, name(i).to_str().unwrap()));
        let notification = events.iter().position(|event| *event == notification);
        let replied = events.iter().position(|event| *event == Event::Reply { unique, error: 0 });
        assert!(replied < notification, "name-{i}");
    }
    kernel.finish();
}

#[test]
fn outside_of_a_handler_waiting_works_both_ways() {
    let kernel = serve();
    let caches = kernel.session().caches();
    caches.invalidate_entry(NodeId(5), b"x").wait().unwrap();
    let completion = Mutex::new(Box::pin(caches.invalidate_node_whole(NodeId(5))));
    until("the future is ready", || {
        let polled = completion.lock().as_mut().poll(&mut Context::from_waker(Waker::noop()));
        polled == Poll::Ready(Ok(()))
    });
    kernel.finish();
}

#[test]
fn all_kinds_arrive_as_they_were_asked_for() {
    let kernel = serve();
    let caches = kernel.session().caches();
    caches.invalidate_entry(NodeId(2), b"a").wait().unwrap();
    caches.expire_entry(NodeId(2), b"b").wait().unwrap();
    caches.delete_entry(NodeId(2), NodeId(3), b"c").wait().unwrap();
    caches.invalidate_node(NodeId(3), None).wait().unwrap();
    caches.invalidate_node(NodeId(3), Some(4096..8192)).wait().unwrap();
    caches.invalidate_all().wait().unwrap();
    caches.store(NodeId(3), 10, b"data".to_vec()).wait().unwrap();
    caches.prune(&[NodeId(3), NodeId(4)]).wait().unwrap();
    caches.poll_ready(PollHandle(9)).wait().unwrap();
    caches.resend().wait().unwrap();
    assert!(
        kernel
            .wait_events(REPLY_TIMEOUT, |events| events.contains(&Event::Notification(Notification::Resend)))
    );
    let expire = Notification::InvalEntry { parent: 2, name: b"b".to_vec(), flags: 1 };
    let expected = [
        entry(2, "a"),
        expire.clone(),
        Notification::Delete { parent: 2, child: 3, name: b"c".to_vec() },
        Notification::InvalInode { node: 3, off: -1, len: 0 },
        Notification::InvalInode { node: 3, off: 4096, len: 4096 },
        Notification::IncEpoch,
        Notification::Store { node: 3, offset: 10, data: b"data".to_vec() },
        Notification::Prune { nodes: vec![3, 4] },
        Notification::Poll { kh: 9 },
        Notification::Resend,
    ];
    let mut notifications = kernel.take_notifications();
    // An expiry is repeated a few times, first after 2 ms.
    let mut expiries = 0;
    notifications.retain(|it| {
        expiries += usize::from(*it == expire);
        *it != expire || expiries == 1
    });
    assert_eq!(notifications, expected);
    assert_eq!(kernel.pages(3), b"\0\0\0\0\0\0\0\0\0\0data");
    kernel.finish();
}

#[test]
fn stored_data_is_retrieved() {
    let kernel = serve();
    let caches = kernel.session().caches();
    kernel.set_pages(7, b"0123456789");
    assert_eq!(caches.retrieve(NodeId(7), 3, 4).wait().unwrap(), b"3456");
    assert_eq!(caches.retrieve(NodeId(7), 8, 40).wait().unwrap(), b"89");
    assert_eq!(caches.retrieve(NodeId(7), 80, 40).wait().unwrap(), b"");
    caches.store(NodeId(8), 0, vec![0xab; 60_000]).wait().unwrap();
    assert_eq!(caches.retrieve(NodeId(8), 0, 60_000).wait().unwrap(), vec![0xab; 60_000]);
    kernel.finish();
}

/// Fills the socket, so that the next notifications stay in the queue.
fn stop_reading(kernel: &Served<NotifyingFs>) {
    kernel.pause();
    let caches = kernel.session().caches();
    // All sending threads must be blocked, each on a node of its own.
    for node in 1_000_000.. {
        caches.invalidate_node(NodeId(node), None);
        if caches.queued() > 64 {
            std::thread::sleep(Duration::from_millis(20));
            if caches.queued() > 64 {
                break;
            }
        }
    }
}

#[test]
fn equal_notifications_are_merged_and_each_is_told() {
    let kernel = serve();
    stop_reading(&kernel);
    let caches = kernel.session().caches();
    let before = caches.queued();
    let completions: Vec<_> = (0..1000).map(|_| caches.invalidate_entry(NodeId(3), b"same")).collect();
    assert_eq!(caches.queued(), before + 1);
    kernel.resume();
    completions.into_iter().for_each(|completion| completion.wait().unwrap());
    // One more, to be sure that all before it have arrived.
    caches.invalidate_entry(NodeId(3), b"last").wait().unwrap();
    assert!(
        kernel.wait_events(REPLY_TIMEOUT, |events| events.contains(&Event::Notification(entry(3, "last"))))
    );
    let all = kernel.take_notifications();
    assert_eq!(all.into_iter().filter(|it| *it == entry(3, "same")).count(), 1);
    kernel.finish();
}

#[test]
fn notifications_of_one_node_keep_their_order() {
    let kernel = serve();
    let caches = kernel.session().caches();
    let mut last = Vec::new();
    for i in 0..500 {
        for node in 1..=8 {
            last.push(caches.invalidate_entry(NodeId(node), format!("{i:03}").as_bytes()));
        }
    }
    last.into_iter().for_each(|completion| completion.wait().unwrap());
    assert!(kernel.wait_events(REPLY_TIMEOUT, |events| notifications(events) == 4000));
    let all = kernel.take_notifications();
    for node in 1..=8 {
        let names = all.iter().filter_map(|it| match it {
            Notification::InvalEntry { parent, name, .. } if *parent == node => Some(name),
            _ => None,
        });
        assert!(names.is_sorted(), "node {node}");
    }
    kernel.finish();
}

/// Returns the resident memory in bytes.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

#[test]
fn too_many_names_become_one_expiry_in_bounded_memory() {
    let kernel = serve();
    stop_reading(&kernel);
    let caches = kernel.session().caches();
    let ask = |range: std::ops::Range<u64>| {
        for i in range {
            caches.invalidate_entry(NodeId(2 + i % 1000), format!("{i}").as_bytes());
            assert!(caches.queued() <= Caches::MAX_QUEUED_NOTIFICATIONS + 1000);
        }
    };
    let last = 200_000;
    ask(0..last);
    let before = resident();
    ask(last..600_000);
    let grown = resident().saturating_sub(before);
    assert!(grown < 24 << 20, "{} MiB more", grown >> 20);
    let overflows = kernel.session().notification_overflows();
    assert!(overflows >= 5, "{overflows} overflows");
    let completion = caches.invalidate_entry(NodeId(2), b"the last");
    kernel.resume();
    completion.wait().unwrap();
    until("the queue is empty", || caches.queued() == 0);
    until("names expire", || kernel.take_notifications().contains(&Notification::IncEpoch));
    kernel.finish();
}

#[test]
fn the_end_of_the_session_completes_all_who_wait() {
    let kernel = serve();
    stop_reading(&kernel);
    let caches = kernel.session().caches().clone();
    let waiting = std::thread::spawn({
        let caches = caches.clone();
        move || caches.invalidate_entry(NodeId(3), b"never").wait()
    });
    let retrieve = caches.retrieve(NodeId(3), 0, 100);
    std::thread::sleep(Duration::from_millis(20));
    assert!(!waiting.is_finished());
    let end = kernel.session().clone();
    kernel.finish();
    assert_eq!(waiting.join().unwrap(), Err(Errno::NOTCONN));
    assert_eq!(retrieve.wait(), Err(Errno::NOTCONN));
    assert_eq!(end.caches().invalidate_all().wait(), Err(Errno::NOTCONN));
}
