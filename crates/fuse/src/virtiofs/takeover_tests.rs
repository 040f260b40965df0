//! A guest whose server is killed at each step between taking a request and returning it, again and again. The guest's driver
//! compares all replies and the final directory with a model: each request is executed once, and answered once.
//!
//! The servers and the guardian are this test program, started again. The driver is the test itself, and plays the emulator too.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::MemfdFlags;
use shunt_fuse_abi::{InHeader, InitIn, MkdirIn, Opcode, OutHeader, RenameIn, Wire};
use vm_memory::{Bytes, FileOffset, GuestAddress, GuestMemoryMmap};

use super::*;
use crate::guardian::relay_message::{Message, Request as VhostRequest};
use crate::guardian::{Guardian, HandOver, Restart, main};
use crate::mount::tests::{my_role, role};
use crate::transport::virtio::crash_point::{Step, armed};
use crate::transport::virtio::inflight;
use crate::{Attributes, Entry, Errno, Expiry, Name, NewNode, NodeId, Profile, RenameFlags, Request};

const GUARDIAN: &str = concat!(module_path!(), "::play_the_guardian");
const SERVER: &str = concat!(module_path!(), "::play_the_server");
const SUCCESSOR: &str = "successor";

const STEPS: [Step; 7] =
    [Step::Take, Step::Taken, Step::Executed, Step::Replied, Step::Used, Step::Clear, Step::Notify];

#[test]
fn play_the_guardian() {
    if my_role().as_deref() == Some("guardian")
        && std::env::args().any(|word| word.ends_with("play_the_guardian"))
    {
        let _ = main();
    }
}

/// A directory of directories, which are made, renamed and removed by real system calls.
struct Directories(PathBuf);

impl Directories {
    fn path(&self, name: Name<'_>) -> PathBuf {
        self.0.join(std::str::from_utf8(name.as_bytes()).unwrap())
    }

    /// Runs a system call that must not be executed twice; `again` is the error of a second execution.
    fn once(request: &Request<'_>, again: Errno, call: impl FnOnce() -> io::Result<()>) -> Result<(), Errno> {
        request.begin(|| Ok([0; 4]))?;
        let result = call().map_err(|error| Errno::from_io_error(&error).unwrap());
        match (result, request.begun()) {
            (Err(errno), Some(_)) if errno == again => Ok(()),
            (result, _) => result,
        }
    }
}

impl FileSystem for Directories {
    async fn mkdir(
        &self,
        request: &Request<'_>,
        _: NodeId,
        name: Name<'_>,
        _: NewNode,
    ) -> Result<Entry, Errno> {
        Self::once(request, Errno::EXIST, || std::fs::create_dir(self.path(name)))?;
        let attributes = Attributes { ino: 2, mode: 0o040_755, nlink: 2, ..Attributes::default() };
        Ok(Entry::new(NodeId(2), attributes, Expiry::FOREVER))
    }

    async fn rmdir(&self, request: &Request<'_>, _: NodeId, name: Name<'_>) -> Result<(), Errno> {
        Self::once(request, Errno::NOENT, || std::fs::remove_dir(self.path(name)))
    }

    async fn rename(
        &self,
        request: &Request<'_>,
        _: NodeId,
        name: Name<'_>,
        _: NodeId,
        new_name: Name<'_>,
        _: RenameFlags,
    ) -> Result<(), Errno> {
        Self::once(request, Errno::NOENT, || std::fs::rename(self.path(name), self.path(new_name)))
    }
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap()
}

/// Serves until it is killed: at the step that the environment names, when it is passed for a number of times that depends on how
/// many servers there were.
#[test]
fn play_the_server() {
    if my_role().is_none() {
        return;
    }
    let is_successor = std::env::args().any(|word| word == SUCCESSOR);
    let directory = PathBuf::from(variable("SHUNT_TEST_PLACE"));
    let config = Config::new(Profile::Passthrough).threads(2, 2);
    let served = directory.join("served");
    let fs = served.clone();
    let mut server = Server::new(config, move || Ok(Directories(fs.clone())), |_| {});
    let socket = directory.join("socket");
    let (connections, takeovers) = if is_successor {
        let hand_over = HandOver::receive().unwrap();
        let takeovers = hand_over.takeovers();
        let fs = hand_over.has_session().then_some(Directories(served));
        hand_over.confine_guardian().unwrap();
        (server.resume(fs, hand_over).unwrap(), takeovers)
    } else {
        let arguments = std::env::args_os().chain([SUCCESSOR.into()]).collect();
        let restart = Restart { arguments, crashes: 10_000 };
        let guardian = Arc::new(Guardian::spawn_restarting(role(GUARDIAN, "guardian"), restart).unwrap());
        let listener = UnixListener::bind(&socket).unwrap();
        let connections = server.guard(&guardian, &listener, &socket).unwrap();
        std::mem::forget(guardian);
        (connections, 0)
    };
    let (written, shown) = (directory.join("takeovers.new"), directory.join("takeovers"));
    std::fs::write(&written, takeovers.to_string()).unwrap();
    std::fs::rename(written, shown).unwrap();
    if takeovers < variable("SHUNT_TEST_KILLS").parse().unwrap() {
        let step = STEPS[variable("SHUNT_TEST_STEP").parse::<usize>().unwrap()];
        // Requests before the first kill: INIT among them at times.
        armed::arm(step, 1 + takeovers % 5);
    }
    server.serve(connections).unwrap();
}

const ENTRIES: u16 = 16;
const TABLE: u64 = 0x1000;
const AVAILABLE: u64 = 0x4000;
const USED: u64 = 0x6000;
const BUFFERS: u64 = 0x10000;
const MEMORY_BYTES: u64 = 1 << 20;
/// Address of the guest's memory in the emulator, which is not the one in the guest.
const EMULATOR_ADDRESS: u64 = 0x7000_0000;

/// The emulator and the driver of a guest.
struct Machine {
    emulator: UnixStream,
    memory: GuestMemoryMmap,
    file: File,
    kick: OwnedFd,
    call: OwnedFd,
    available: u16,
    used: u16,
    unique: u64,
    /// Requests in the queue by head.
    pending: BTreeMap<u16, (u64, Operation)>,
}

/// Maps the guest's memory.
fn map(file: &File) -> GuestMemoryMmap {
    let file = FileOffset::new(file.try_clone().unwrap(), 0);
    GuestMemoryMmap::from_ranges_with_files([(GuestAddress(0), MEMORY_BYTES as usize, Some(file))]).unwrap()
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Operation {
    Init,
    Make(String),
    Rename(String, String),
    Remove(String),
}

impl Machine {
    fn connect(socket: &Path) -> Self {
        let file = File::from(rustix::fs::memfd_create("guest", MemfdFlags::CLOEXEC).unwrap());
        file.set_len(MEMORY_BYTES).unwrap();
        let range =
            (GuestAddress(0), MEMORY_BYTES as usize, Some(FileOffset::new(file.try_clone().unwrap(), 0)));
        let memory = GuestMemoryMmap::from_ranges_with_files([range]).unwrap();
        let event = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
        Self {
            emulator: UnixStream::connect(socket).unwrap(),
            memory,
            file,
            kick: event(),
            call: event(),
            available: 0,
            used: 0,
            unique: 2,
            pending: BTreeMap::new(),
        }
    }

    /// Makes a machine with a copy of the memory, and the same requests in flight.
    fn copy(&self) -> Self {
        let file = File::from(copy_of(&self.file.try_clone().unwrap().into()));
        let memory = map(&file);
        let event = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
        let emulator = self.emulator.try_clone().unwrap();
        Self { emulator, memory, file, kick: event(), call: event(), pending: self.pending.clone(), ..*self }
    }

    fn tell(&self, request: VhostRequest, body: Vec<u8>, files: Vec<OwnedFd>) {
        Message::new(request, body, files).send(self.emulator.as_fd()).unwrap();
    }

    fn ask(&self, request: VhostRequest, body: Vec<u8>) -> Message {
        self.tell(request, body, Vec::new());
        Message::receive(self.emulator.as_fd(), true).unwrap()
    }

    /// Sets up queue 1 as QEMU does, which knows nothing of requests in flight.
    fn set_up(&self) {
        self.set_up_features(1);
        self.start_queue(0);
    }

    /// Sets up queue 1 as cloud-hypervisor does, which keeps the memory for requests in flight itself. Returns that memory.
    fn set_up_with_inflight(&self) -> Message {
        self.set_up_features(1 | 1 << 12);
        let mut wanted = vec![0; 16];
        wanted.extend([2, ENTRIES].map(u16::to_le_bytes).concat());
        wanted.extend([0; 4]);
        let memory = self.ask(VhostRequest::GetInflightFd, wanted);
        assert_eq!(memory.files.len(), 1);
        self.set_inflight(&memory);
        self.start_queue(0);
        memory
    }

    fn set_inflight(&self, memory: &Message) {
        let files = vec![memory.files[0].try_clone().unwrap()];
        self.tell(VhostRequest::SetInflightFd, memory.body.clone(), files);
    }

    fn set_up_features(&self, chosen: u64) {
        let offered = self.ask(VhostRequest::GetFeatures, Vec::new()).number().unwrap();
        let protocol = self.ask(VhostRequest::GetProtocolFeatures, Vec::new()).number().unwrap();
        assert_ne!(protocol & 1 << 12, 0, "requests in flight are tracked");
        self.tell(VhostRequest::SetProtocolFeatures, chosen.to_le_bytes().to_vec(), Vec::new());
        self.tell(VhostRequest::SetOwner, Vec::new(), Vec::new());
        let features = 1_u64 << 32 | 1 << 30;
        assert_eq!(offered & features, features);
        self.tell(VhostRequest::SetFeatures, features.to_le_bytes().to_vec(), Vec::new());
        let numbers = [1, 0, MEMORY_BYTES, EMULATOR_ADDRESS, 0].map(u64::to_le_bytes).concat();
        self.tell(VhostRequest::SetMemTable, numbers, vec![self.file.try_clone().unwrap().into()]);
    }

    fn start_queue(&self, base: u32) {
        let pair = |index: u32, value: u32| [index, value].map(u32::to_le_bytes).concat();
        self.tell(VhostRequest::SetVringNum, pair(1, ENTRIES.into()), Vec::new());
        self.tell(VhostRequest::SetVringBase, pair(1, base), Vec::new());
        let mut address = pair(1, 0);
        for at in [TABLE, USED, AVAILABLE] {
            address.extend((EMULATOR_ADDRESS + at).to_le_bytes());
        }
        address.extend(0_u64.to_le_bytes());
        self.tell(VhostRequest::SetVringAddr, address, Vec::new());
        let copy = |event: &OwnedFd| vec![event.try_clone().unwrap()];
        self.tell(VhostRequest::SetVringKick, 1_u64.to_le_bytes().to_vec(), copy(&self.kick));
        self.tell(VhostRequest::SetVringCall, 1_u64.to_le_bytes().to_vec(), copy(&self.call));
        self.tell(VhostRequest::SetVringEnable, pair(1, 1), Vec::new());
    }

    fn put(&self, at: u64, bytes: &[u8]) {
        self.memory.write_slice(bytes, GuestAddress(at)).unwrap();
    }

    fn get<const N: usize>(&self, at: u64) -> [u8; N] {
        let mut bytes = [0; N];
        self.memory.read_slice(&mut bytes, GuestAddress(at)).unwrap();
        bytes
    }

    /// Puts a request into slot `slot` of the queue: two descriptors, for the request and for its reply.
    fn submit(&mut self, slot: u16, operation: Operation) {
        let name = |name: &str| [name.as_bytes(), b"\0"].concat();
        let init = InitIn { major: 7, minor: 41, flags: u32::MAX, ..Default::default() };
        let (opcode, node, argument) = match &operation {
            Operation::Init => (Opcode::Init, 0, init.as_bytes().to_vec()),
            Operation::Make(path) => {
                (Opcode::Mkdir, 1, [MkdirIn { mode: 0o755, umask: 0 }.as_bytes(), &name(path)].concat())
            }
            Operation::Rename(from, to) => {
                (Opcode::Rename, 1, [RenameIn { newdir: 1 }.as_bytes(), &name(from), &name(to)].concat())
            }
            Operation::Remove(path) => (Opcode::Rmdir, 1, name(path)),
        };
        let unique = self.unique;
        self.unique += 2;
        let len = (InHeader::SIZE + argument.len()) as u32;
        let header = InHeader { len, opcode: opcode.as_raw(), unique, nodeid: node, ..Default::default() };
        let buffer = BUFFERS + 0x1000 * u64::from(slot);
        self.put(buffer, &[header.as_bytes(), &argument].concat());
        self.put(buffer + 0x800, &[0; 0x200]);
        let head = 2 * slot;
        for (index, start, length, flags, next) in
            [(head, buffer, len, 1_u16, head + 1), (head + 1, buffer + 0x800, 0x200, 2, 0)]
        {
            let mut descriptor = start.to_le_bytes().to_vec();
            descriptor.extend(length.to_le_bytes());
            descriptor.extend(flags.to_le_bytes());
            descriptor.extend(next.to_le_bytes());
            self.put(TABLE + 16 * u64::from(index), &descriptor);
        }
        self.put(AVAILABLE + 4 + 2 * u64::from(self.available % ENTRIES), &head.to_le_bytes());
        self.available = self.available.wrapping_add(1);
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        self.put(AVAILABLE + 2, &self.available.to_le_bytes());
        assert!(self.pending.insert(head, (unique, operation)).is_none());
        rustix::io::write(&self.kick, &1_u64.to_ne_bytes()).unwrap();
    }

    /// Waits for replies, and takes all there are: slot, operation and error of each.
    fn replies(&mut self) -> Vec<(u16, Operation, i32)> {
        loop {
            let replies = self.notified();
            // After a takeover the guest is notified in any case.
            if !replies.is_empty() {
                return replies;
            }
        }
    }

    /// Waits for a notification, and takes the replies that it announces.
    fn notified(&mut self) -> Vec<(u16, Operation, i32)> {
        let limit = shunt_test_support::pace::seconds(10);
        let timeout = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: 0 };
        let polled = poll(&mut [PollFd::new(&self.call, PollFlags::IN)], Some(&timeout)).unwrap();
        assert_eq!(polled, 1, "no reply to {:?}", self.pending);
        rustix::io::read(&self.call, &mut [0; 8]).unwrap();
        let mut replies = Vec::new();
        while self.used != u16::from_le_bytes(self.get(USED + 2)) {
            let at = USED + 4 + 8 * u64::from(self.used % ENTRIES);
            let (head, length) = (u32::from_le_bytes(self.get(at)), u32::from_le_bytes(self.get(at + 4)));
            self.used = self.used.wrapping_add(1);
            let (unique, operation) =
                self.pending.remove(&(head as u16)).expect("one reply for each request");
            let slot = head as u16 / 2;
            let reply: [u8; OutHeader::SIZE] = self.get(BUFFERS + 0x1000 * u64::from(slot) + 0x800);
            let reply = OutHeader::read_from_bytes(&reply).unwrap();
            assert_eq!((reply.unique, reply.len), (unique, length), "{operation:?}");
            replies.push((slot, operation, reply.error));
        }
        replies
    }
}

/// The first server, and what follows it.
struct Servers {
    first: Child,
    directory: tempfile::TempDir,
}

impl Servers {
    fn start(step: usize, kills: u32) -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("served")).unwrap();
        let mut command = role(SERVER, "server");
        command.env("SHUNT_TEST_PLACE", directory.path());
        command.env("SHUNT_TEST_STEP", step.to_string()).env("SHUNT_TEST_KILLS", kills.to_string());
        command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
        let first = command.spawn().unwrap();
        let servers = Self { first, directory };
        let start = std::time::Instant::now();
        while !servers.directory.path().join("takeovers").exists() {
            assert!(start.elapsed() < shunt_test_support::pace::seconds(10), "no server");
            std::thread::sleep(Duration::from_millis(5));
        }
        servers
    }

    fn machine(&self) -> Machine {
        Machine::connect(&self.directory.path().join("socket"))
    }

    fn takeovers(&self) -> u32 {
        std::fs::read_to_string(self.directory.path().join("takeovers")).unwrap().parse().unwrap()
    }

    fn names(&self) -> BTreeSet<String> {
        let listed = std::fs::read_dir(self.directory.path().join("served")).unwrap();
        listed.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        // The guardian finds the device's socket gone from the file system of no interest; what ends it is its last server. The
        // servers are its children, and all of them are named by their environment.
        let place = format!("SHUNT_TEST_PLACE={}", self.directory.path().display());
        let _ = self.first.kill();
        let _ = self.first.wait();
        let ours = || {
            let processes = std::fs::read_dir("/proc").unwrap().flatten();
            processes.filter_map(|process| {
                let environment = std::fs::read(process.path().join("environ")).ok()?;
                let is_ours = environment.split(|byte| *byte == 0).any(|word| word == place.as_bytes());
                is_ours.then(|| process.file_name().to_str()?.parse().ok()).flatten()
            })
        };
        for _ in 0..100 {
            let found: Vec<i32> = ours().collect();
            if found.is_empty() {
                break;
            }
            for pid in found.into_iter().filter_map(rustix::process::Pid::from_raw) {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Makes, renames and removes a directory in each of `SLOTS` slots, `rounds` times, with all slots in the queue at once. The last
/// round's directories stay.
fn run(machine: &mut Machine, rounds: u32) -> BTreeSet<String> {
    const SLOTS: u16 = 6;
    let mut plans: Vec<VecDeque<Operation>> = (0..SLOTS)
        .map(|slot| {
            let (made, moved) = (format!("{slot}"), format!("{slot}-moved"));
            let round = |last: bool| {
                let mut plan =
                    vec![Operation::Make(made.clone()), Operation::Rename(made.clone(), moved.clone())];
                plan.extend((!last).then(|| Operation::Remove(moved.clone())));
                plan
            };
            (1..=rounds).flat_map(|number| round(number == rounds)).collect()
        })
        .collect();
    let mut running = 0;
    for slot in 0..SLOTS {
        machine.submit(slot, plans[usize::from(slot)].pop_front().unwrap());
        running += 1;
    }
    while running > 0 {
        for (slot, operation, error) in machine.replies() {
            assert_eq!(error, 0, "{operation:?}");
            match plans[usize::from(slot)].pop_front() {
                Some(next) => machine.submit(slot, next),
                None => running -= 1,
            }
        }
    }
    (0..SLOTS).map(|slot| format!("{slot}-moved")).collect()
}

/// Kills servers at one step.
fn survives(step: Step) {
    if my_role().is_some() {
        return;
    }
    const KILLS: u32 = 12;
    let index = STEPS.iter().position(|each| *each == step).unwrap();
    let servers = Servers::start(index, KILLS);
    let mut machine = servers.machine();
    machine.set_up();
    machine.submit(0, Operation::Init);
    assert_eq!(machine.replies(), [(0, Operation::Init, 0)]);
    let expected = run(&mut machine, 30);
    assert!(machine.pending.is_empty());
    assert_eq!(servers.names(), expected, "each request was executed once");
    assert_eq!(servers.takeovers(), KILLS, "each server but the last was killed");
}

#[test]
fn killed_before_a_request_is_recorded() {
    survives(Step::Take);
}

#[test]
fn killed_before_a_request_is_executed() {
    survives(Step::Taken);
}

#[test]
fn killed_after_a_request_was_executed() {
    survives(Step::Executed);
}

#[test]
fn killed_after_the_reply_was_written() {
    survives(Step::Replied);
}

#[test]
fn killed_after_the_reply_was_published() {
    survives(Step::Used);
}

#[test]
fn killed_before_the_record_is_complete() {
    survives(Step::Clear);
}

#[test]
fn killed_before_the_guest_is_notified() {
    survives(Step::Notify);
}

/// The emulator keeps the memory for requests in flight itself.
#[test]
fn killed_with_the_memory_of_the_emulator() {
    if my_role().is_some() {
        return;
    }
    let servers = Servers::start(2, 5);
    let mut machine = servers.machine();
    let memory = machine.set_up_with_inflight();
    machine.submit(0, Operation::Init);
    assert_eq!(machine.replies(), [(0, Operation::Init, 0)]);
    let expected = run(&mut machine, 10);
    assert_eq!((servers.names(), servers.takeovers()), (expected, 5));
    let mut version = [0; 2];
    let of_queue = inflight::version_offset(1, ENTRIES);
    rustix::io::pread(&memory.files[0], &mut version, of_queue).unwrap();
    assert_eq!(version, [1, 0], "it was used");
}

/// Without a guardian, the emulator connects to another server, which gets the requests in flight but not the session.
#[test]
fn an_emulator_that_reconnects_gets_all_its_requests_answered() {
    if my_role().is_some() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let serve = |name: &str| {
        let socket = directory.path().join(name);
        let listener = UnixListener::bind(&socket).unwrap();
        let (entered, leave) = (directory.path().join("entered"), directory.path().join("leave"));
        let fs = move || Ok(Slow { entered: entered.clone(), leave: leave.clone() });
        let config = Config::new(Profile::Passthrough).threads(2, 2);
        let server = Server::new(config, fs, |_| {});
        let stop = server.stop();
        let thread = std::thread::spawn(move || server.serve(listener).unwrap());
        (socket, stop, thread)
    };
    let (socket, first, first_thread) = serve("first");
    let mut machine = Machine::connect(&socket);
    let memory = machine.set_up_with_inflight();
    machine.submit(0, Operation::Init);
    assert_eq!(machine.replies(), [(0, Operation::Init, 0)]);
    machine.submit(1, Operation::Make("one".into()));
    while !directory.path().join("entered").exists() {
        std::thread::sleep(Duration::from_millis(1));
    }
    // The memory as it is when the server is killed now; this one goes on in a copy of its own.
    let (copy, queue) = (machine.copy(), copy_of(&memory.files[0]));
    let (socket, second, second_thread) = serve("second");
    let mut machine = Machine { emulator: UnixStream::connect(socket).unwrap(), ..copy };
    machine.set_up_features(1 | 1 << 12);
    machine.set_inflight(&Message::new(memory.request, memory.body.clone(), vec![queue]));
    // As cloud-hypervisor does, the index of the available ring: the record is to be believed.
    machine.start_queue(machine.available.into());
    assert_eq!(machine.replies(), [(1, Operation::Make("one".into()), -libc::ENOTCONN)]);
    machine.submit(2, Operation::Init);
    assert_eq!(machine.replies(), [(2, Operation::Init, 0)]);
    std::fs::write(directory.path().join("leave"), "").unwrap();
    machine.submit(3, Operation::Make("two".into()));
    assert_eq!(machine.replies(), [(3, Operation::Make("two".into()), 0)]);
    for (stop, thread) in [(first, first_thread), (second, second_thread)] {
        stop.stop();
        thread.join().unwrap();
    }
}

/// A file system in which a request waits.
struct Slow {
    entered: PathBuf,
    leave: PathBuf,
}

impl FileSystem for Slow {
    async fn mkdir(&self, _: &Request<'_>, _: NodeId, _: Name<'_>, _: NewNode) -> Result<Entry, Errno> {
        std::fs::write(&self.entered, "").unwrap();
        while !self.leave.exists() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let attributes = Attributes { ino: 2, mode: 0o040_755, nlink: 2, ..Attributes::default() };
        Ok(Entry::new(NodeId(2), attributes, Expiry::FOREVER))
    }
}

/// Copies a memory file.
fn copy_of(file: &OwnedFd) -> OwnedFd {
    let copy = rustix::fs::memfd_create("copy", MemfdFlags::CLOEXEC).unwrap();
    let mut content = vec![0; rustix::fs::fstat(file).unwrap().st_size as usize];
    assert_eq!(rustix::io::pread(file, &mut content, 0), Ok(content.len()));
    assert_eq!(rustix::io::pwrite(&copy, &content, 0), Ok(content.len()));
    copy
}

/// The emulator resets its device, as at a reboot of the guest, between two servers.
#[test]
fn a_device_is_reset_and_its_server_killed() {
    if my_role().is_some() {
        return;
    }
    let servers = Servers::start(0, 0);
    let mut machine = servers.machine();
    machine.set_up();
    for boot in 0..4_u32 {
        machine.submit(0, Operation::Init);
        assert_eq!(machine.replies(), [(0, Operation::Init, 0)]);
        let name = format!("boot-{boot}");
        machine.submit(1, Operation::Make(name.clone()));
        assert_eq!(machine.replies(), [(1, Operation::Make(name), 0)]);
        // The queue is stopped, and its index is what was taken.
        let index = [1_u32, 0].map(u32::to_le_bytes).concat();
        let stopped = machine.ask(VhostRequest::GetVringBase, index);
        assert_eq!(stopped.body[4..8], u32::from(machine.available).to_le_bytes());
        if boot % 2 == 0 {
            kill_server(&servers);
        }
        (machine.available, machine.used) = (0, 0);
        machine.put(TABLE, &[0; 0x6000]);
        machine.start_queue(0);
        if boot % 2 == 1 {
            kill_server(&servers);
        }
    }
    machine.submit(0, Operation::Init);
    assert_eq!(machine.replies(), [(0, Operation::Init, 0)]);
    assert_eq!(servers.names().len(), 4);
    assert_eq!(servers.takeovers(), 4);
}

/// Kills the server that runs, and waits for the next one.
fn kill_server(servers: &Servers) {
    let before = servers.takeovers();
    let place = format!("SHUNT_TEST_PLACE={}", servers.directory.path().display());
    let name = b"play_the_server";
    let pid = std::fs::read_dir("/proc").unwrap().flatten().find_map(|process| {
        let words = |file| std::fs::read(process.path().join(file)).ok();
        let has = |words: &[u8], word: &[u8]| words.split(|byte| *byte == 0).any(|each| each.ends_with(word));
        let found = has(&words("environ")?, place.as_bytes())
            && has(&words("cmdline")?, name)
            && has(&words("environ")?, b"SHUNT_TEST_KILLS=0");
        let alive = !String::from_utf8(words("stat")?).unwrap().contains(") Z ");
        (found && alive).then(|| process.file_name().to_str()?.parse().ok()).flatten()
    });
    let pid = rustix::process::Pid::from_raw(pid.expect("a server runs")).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    let start = std::time::Instant::now();
    while servers.takeovers() == before {
        assert!(start.elapsed() < shunt_test_support::pace::seconds(10), "no successor");
        std::thread::sleep(Duration::from_millis(5));
    }
}
