//! How the engine alone scales: files written by one thread, and by two in two directories.
//!
//! `two_writers IMAGE FILES`: the image has directories `0` and `1` with empty files `0` to FILES - 1.

use std::io;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use shunt_ext4::{Device, Filesystem};

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
    let numbers = |directory: u32| -> Result<Vec<u32>, shunt_ext4::Error> {
        let directory = fs.walk(format!("{directory}").as_bytes())?;
        (0..files).map(|n| Ok(fs.find(&directory, format!("{n}").as_bytes())?.number)).collect()
    };
    let numbers = [numbers(0)?, numbers(1)?];
    let data = vec![7; 16 << 10];
    let work = |numbers: &[u32]| -> Result<Duration, shunt_ext4::Error> {
        let start = Instant::now();
        for &number in numbers {
            fs.write(number, 0, &data[..4096])?;
            fs.write(number, 4096, &data)?;
            fs.truncate(number, 3000)?;
            fs.truncate(number, 0)?;
        }
        Ok(start.elapsed())
    };
    for round in 0..16 {
        let one = work(&numbers[0])?;
        let two = std::thread::scope(|scope| {
            let threads = numbers.each_ref().map(|numbers| scope.spawn(|| work(numbers)));
            threads.map(|thread| thread.join().expect("no panic"))
        });
        let two = two.into_iter().collect::<Result<Vec<_>, _>>()?.into_iter().max().unwrap_or_default();
        let gain = 2.0 * one.as_secs_f64() / two.as_secs_f64();
        println!("round {round}: one {one:?}, two {two:?}: {gain:.2} times as much");
    }
    fs.close()?;
    Ok(())
}
