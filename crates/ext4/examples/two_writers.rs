//! How the engine alone scales: files written by one thread, and by two in two directories.
//!
//! `two_writers IMAGE FILES`: makes FILES files, writes and removes them, in the image's copy in memory.

use std::io;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use shunt_ext4::{Device, Filesystem, Making, New, ROOT};

/// The image in memory, in pieces that have a lock each: what writers wait for is the engine, and not the kernel's lock
/// of the image file.
struct Pieces(Vec<RwLock<Vec<u8>>>);

const PIECE: u64 = 64 << 10;

impl Pieces {
    /// Calls `each` with every piece that a range meets: it, where in it, and where in the range.
    fn parts(&self, offset: u64, length: usize, mut each: impl FnMut(&RwLock<Vec<u8>>, usize, usize, usize)) {
        let mut done = 0;
        while done < length {
            let at = offset + done as u64;
            let within = (at % PIECE) as usize;
            let count = (PIECE as usize - within).min(length - done);
            each(&self.0[(at / PIECE) as usize], within, done, count);
            done += count;
        }
    }
}

impl Device for Pieces {
    fn size(&self) -> u64 {
        self.0.len() as u64 * PIECE
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.parts(offset, buffer.len(), |piece, within, done, count| {
            let piece = piece.read().unwrap_or_else(PoisonError::into_inner);
            buffer[done..done + count].copy_from_slice(&piece[within..within + count]);
        });
        Ok(())
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.parts(offset, data.len(), |piece, within, done, count| {
            let mut piece = piece.write().unwrap_or_else(PoisonError::into_inner);
            piece[within..within + count].copy_from_slice(&data[done..done + count]);
        });
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let image = args.next().ok_or("an image")?;
    let files: u32 = args.next().ok_or("a number of files")?.parse()?;
    let image = std::fs::read(image)?;
    let device = Pieces(image.chunks(PIECE as usize).map(|piece| RwLock::new(piece.to_vec())).collect());
    drop(image);
    let fs = Filesystem::open_writable(Arc::new(device))?;
    let new = New { permissions: 0o755, ..New::default() };
    let directories = [&b"a"[..], b"b"];
    for name in directories {
        fs.create(ROOT, name, Making::Directory, &new)?;
    }
    let directories = [fs.walk(b"a")?.number, fs.walk(b"b")?.number];
    let data = vec![7; 4 << 10];
    let work = |directory: u32| -> Result<Duration, shunt_ext4::Error> {
        let start = Instant::now();
        for n in 0..files {
            let file = fs.create(directory, format!("file {n}").as_bytes(), Making::Regular, &new)?;
            fs.write(file.number, 0, &data)?;
        }
        let took = start.elapsed();
        for n in 0..files {
            let file = fs.unlink(directory, format!("file {n}").as_bytes())?;
            fs.reap(file.number)?;
        }
        fs.sync()?;
        Ok(took)
    };
    for round in 0..16 {
        let one = work(directories[0])?;
        let work = &work;
        let two = std::thread::scope(|scope| {
            let threads = directories.map(|directory| scope.spawn(move || work(directory)));
            threads.map(|thread| thread.join().expect("no panic"))
        });
        let two = two.into_iter().collect::<Result<Vec<_>, _>>()?.into_iter().max().unwrap_or_default();
        let gain = 2.0 * one.as_secs_f64() / two.as_secs_f64();
        println!("round {round}: one {one:?}, two {two:?}: {gain:.2} times as much");
    }
    fs.close()?;
    Ok(())
}
