//! Calls of the module with any arguments, past the library, and calls that it refuses.

use rustix::io::Errno;
use shunt_extmap::Connection;

/// Returns the descriptor of a connection: the last one opened on the module.
pub fn control_of(_connection: &Connection) -> i32 {
    let fds = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let ours = fds.filter(|fd| {
        std::fs::read_link(fd.path()).is_ok_and(|link| link == std::path::Path::new("/dev/shunt_extmap"))
    });
    let mut numbers: Vec<i32> = ours.map(|fd| fd.file_name().to_str().unwrap().parse().unwrap()).collect();
    numbers.sort_unstable();
    numbers[0]
}

/// Returns the error of a call through the library that must fail.
pub fn refused<T: std::fmt::Debug>(result: std::io::Result<T>) -> Errno {
    Errno::from_io_error(&result.unwrap_err()).unwrap()
}

pub fn word(low: i32, high: u32) -> u64 {
    u64::from(low.cast_unsigned()) | u64::from(high) << 32
}

pub fn push(fd: i32, count: u32, extents: u64) -> [u64; 2] {
    [word(fd, count), extents]
}

/// Makes a raw call of the module, with the size that belongs to its number.
pub fn call(control: i32, number: u64, words: &[u64]) -> Result<i32, Errno> {
    let (direction, size) = match number {
        1 | 2 => (3u64, 24u64),
        3 => (1, 16),
        _ => (0, 0),
    };
    let mut words = words.to_vec();
    issue(control, number, size, direction, words.as_mut_ptr().cast())
}

pub fn issue(
    control: i32,
    number: u64,
    size: u64,
    direction: u64,
    words: *mut std::ffi::c_void,
) -> Result<i32, Errno> {
    let request = direction << 30 | size << 16 | 0xea << 8 | number;
    // SAFETY: the module reads and writes as many bytes as the number encodes, which exist.
    let result = unsafe { libc::ioctl(control, request, words) };
    if result < 0 { Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap()) } else { Ok(result) }
}
