//! Tests with a correct driver.

use shunt_fuse_abi::{FsyncIn, GetattrIn, InterruptIn, ReadIn, WriteIn};

use super::*;

#[test]
fn requests_are_answered() {
    let mut guest = OneFileGuest::mounted();
    let (error, body) = guest.ask(Opcode::Lookup, 2, 1, b"f\0", 4096).unwrap();
    assert_eq!((error, &body[..8]), (0, &2_u64.to_ne_bytes()[..]));
    let (error, body) = guest.ask(Opcode::Lookup, 4, 1, b"g\0", 4096).unwrap();
    assert_eq!((error, body.len()), (-libc::ENOENT, 0));
}

#[test]
fn data_goes_between_file_and_guest() {
    let mut guest = OneFileGuest::mounted();
    let text = b"written by a guest";
    let size = text.len() as u32;
    let arg = WriteIn { offset: 3, size, ..Default::default() };
    let argument = [arg.as_bytes(), text].concat();
    let (error, body) = guest.ask(Opcode::Write, 2, 2, &argument, 8).unwrap();
    assert_eq!((error, &body[..4]), (0, &size.to_ne_bytes()[..]));
    let mut found = [0; 64];
    let length = rustix::io::pread(&guest.content, &mut found, 0).unwrap();
    assert_eq!(&found[3..length], text);

    let arg = ReadIn { offset: 11, size: 4096, ..Default::default() };
    let (error, body) = guest.ask(Opcode::Read, 4, 2, arg.as_bytes(), 4096).unwrap();
    assert_eq!((error, &body[..]), (0, &b"by a guest"[..]), "the end of the file makes a short reply");
}

#[test]
fn data_may_lie_in_many_places_and_across_tables() {
    let mut guest = OneFileGuest::mounted();
    let text: Vec<u8> = (0..3000_u32).map(|n| n as u8).collect();
    let arg = WriteIn { size: 3000, ..Default::default() };
    guest.lay_out(Opcode::Write, 2, 2, &[arg.as_bytes(), &text].concat(), 24);
    let whole = (WriteIn::default().as_bytes().len() + 3000) as u32;
    // An indirect table: the header in two parts, the rest in parts of 77 bytes, then the reply.
    let table = BUFFERS_ADDRESS + 0x20000;
    let mut parts = vec![(BUFFERS_ADDRESS, 7, 0), (BUFFERS_ADDRESS + 7, InHeader::SIZE as u32 - 7, 0)];
    let step = |at: u32| (BUFFERS_ADDRESS + 0x100 + u64::from(at), 77.min(whole - at), 0);
    parts.extend((0..whole).step_by(77).map(step));
    parts.push((REPLY_ADDRESS, 5, WRITE));
    parts.push((REPLY_ADDRESS + 5, 100, WRITE));
    for (index, (start, length, flags)) in parts.iter().copied().enumerate() {
        let last = index + 1 == parts.len();
        let flags = flags | if last { 0 } else { NEXT };
        guest.describe(table, index as u16, Descriptor { start, length, flags, next: index as u16 + 1 });
    }
    let length = 16 * parts.len() as u32;
    guest.describe(TABLE_ADDRESS, 0, Descriptor { start: table, length, flags: INDIRECT, next: 0 });
    guest.offer(0);
    guest.kick();
    guest.settle();
    assert_eq!(guest.last_used(), (0, 24));
    let mut found = vec![0; 4000];
    let length = rustix::io::pread(&guest.content, &mut found, 0).unwrap();
    assert!(found[..length] == text);
}

#[test]
fn request_without_reply_gets_none() {
    let mut guest = OneFileGuest::mounted();
    guest.lay_out(Opcode::Forget, 2, 2, &1_u64.to_ne_bytes(), 0);
    guest.offer(0);
    guest.kick();
    guest.settle();
    assert_eq!((guest.last_used(), guest.used()), ((0, 0), guest.available));
}

#[test]
fn an_interrupt_ends_what_waits_and_a_queue_is_stopped_only_then() {
    let mut guest = OneFileGuest::mounted();
    let before = guest.used();
    guest.lay_out(Opcode::Fsync, 2, 2, FsyncIn::default().as_bytes(), 16);
    guest.offer(0);
    guest.kick();
    std::thread::sleep(std::time::Duration::from_millis(50));
    assert_eq!(guest.used(), before, "the request waits");
    let stopped = std::thread::scope(|scope| {
        let stopped = scope.spawn(|| guest.device.stop_vring(1));
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert!(!stopped.is_finished(), "the device waits for the pending reply");
        // Sent over the other queue.
        let ring = VringRwLock::new(guest.guest.clone(), 16).unwrap();
        let base = 2 * REGION_BYTES;
        ring.set_queue_info(base, base + 0x1000, base + 0x2000).unwrap();
        ring.set_queue_size(16);
        ring.set_queue_ready(true);
        let arg = InterruptIn { unique: 2 };
        let length = (InHeader::SIZE + 8) as u32;
        let opcode = Opcode::Interrupt.as_raw();
        let header = InHeader { len: length, opcode, unique: 3, ..Default::default() };
        guest.put(base + 0x3000, &[header.as_bytes(), arg.as_bytes()].concat());
        guest.describe(base, 0, Descriptor { start: base + 0x3000, length, flags: 0, next: 0 });
        guest.put(base + 0x1000 + 2, &1_u16.to_le_bytes());
        guest.device.handle_event(0, EventSet::IN, &[ring], 0).unwrap();
        stopped.join().unwrap()
    });
    stopped.unwrap();
    let reply = OutHeader::read_from_bytes(&guest.get(REPLY_ADDRESS, 16)).unwrap();
    assert_eq!((reply.unique, reply.error), (2, -libc::EINTR));
}

#[test]
fn a_guest_that_boots_again_begins_anew() {
    let mut guest = OneFileGuest::mounted();
    assert_eq!(guest.ask(Opcode::Destroy, 2, 0, &[], 0).unwrap().0, 0);
    let arg = GetattrIn::default();
    let (error, _) = guest.ask(Opcode::Getattr, 4, 1, arg.as_bytes(), 4096).unwrap();
    assert_eq!(error, -libc::ENOTCONN);
    for unique in [6, 8] {
        let init = InitIn { major: 7, minor: 41, flags: u32::MAX, ..Default::default() };
        assert_eq!(guest.ask(Opcode::Init, unique, 0, init.as_bytes(), 64).unwrap().0, 0);
        assert_eq!(guest.ask(Opcode::Getattr, unique + 1, 1, arg.as_bytes(), 4096).unwrap().0, 0);
    }
}
