//! Runs the rounds: both sides, every case, in turn.

use std::io;
use std::time::{Duration, Instant};

use super::case::{Case, Plan, Work};
use super::interrupt::Interrupt;
use super::results::{Results, Series};
use super::scratch::Scratch;
use super::sides::{Side, Sides};
use super::workload::{DataFile, Files, Mode, Sample, Slot, run_metadata};
use crate::error::{Result, failed};
use crate::progress::Progress;

/// Rounds after which the time limit ends the benchmark: an interval of six has a confidence of 95 %.
const ENOUGH_ROUNDS: u32 = 6;
/// Rounds after which three times the time limit ends it.
const MIN_ROUNDS: u32 = 3;

/// A side at work.
struct Worker {
    side: Side,
    scratch: Scratch,
    data: Option<DataFile>,
    series: Vec<Series>,
}

/// Measures both sides.
///
/// # Errors
/// An operation of a file system failed, or a signal came. The subdirectories are removed then, too.
pub fn measure(plan: &Plan, sides: &Sides, interrupt: &Interrupt) -> Result<Results> {
    let progress = Progress::new();
    let steps = plan.cases.len() as u64 * u64::from(plan.rounds) * 2;
    let length = Duration::from_secs(plan.seconds).div_f64(steps.max(1) as f64).max(Duration::from_millis(1));
    let slot = Slot { length, interrupt };
    let mut workers = Vec::with_capacity(2);
    for side in [&sides.mount, &sides.against] {
        progress.update(format_args!("{}: creating files", side.dir.display()));
        workers.push(Worker::new(side, plan, &slot)?);
        interrupt.check()?;
    }
    let limit = Duration::from_secs(plan.seconds);
    let mut begun = Instant::now();
    let mut rounds = 0;
    // Round 0 loads code and caches, and does not count.
    for round in 0..=plan.rounds {
        let mut order: [usize; 2] = [0, 1];
        if round % 2 == 1 {
            order.reverse();
        }
        let short = Slot { length: if round == 0 { length / 10 } else { length }, interrupt };
        run_round(plan, &mut workers, order, &short, round, &progress)?;
        if round == 0 {
            begun = Instant::now();
            continue;
        }
        rounds = round;
        let taken = begun.elapsed();
        if round >= ENOUGH_ROUNDS && taken >= limit || round >= MIN_ROUNDS && taken >= limit * 3 {
            break;
        }
    }
    let seconds = begun.elapsed().as_secs_f64();
    let mut series = Vec::new();
    for worker in workers {
        worker.scratch.remove()?;
        series.push(worker.series);
    }
    let (against, mount) = (series.pop().unwrap_or_default(), series.pop().unwrap_or_default());
    progress.end(format_args!("{rounds} rounds in {seconds:.1} s"));
    Ok(Results::new(plan, sides, rounds, seconds, mount, against))
}

fn run_round(
    plan: &Plan,
    workers: &mut [Worker],
    order: [usize; 2],
    slot: &Slot<'_>,
    round: u32,
    progress: &Progress,
) -> Result<()> {
    let mut files = [None, None];
    for at in order {
        files[at] = workers[at].files(plan)?;
    }
    for (number, case) in plan.cases.iter().enumerate() {
        for at in order {
            let dir = workers[at].side.dir.display();
            progress.update(format_args!("round {round} of {}: {}: {dir}", plan.rounds, case.name));
            let sample = workers[at].step(case, files[at].as_mut(), slot);
            slot.interrupt.check()?;
            if round > 0 || sample.is_err() {
                workers[at].series[number].push(sample)?;
            }
        }
    }
    for files in files.into_iter().flatten() {
        files
            .remove()
            .map_err(|error| failed(format_args!("cannot remove the files of a round: {error}")))?;
    }
    Ok(())
}

impl Worker {
    fn new(side: &Side, plan: &Plan, slot: &Slot<'_>) -> Result<Self> {
        let scratch = Scratch::new(&side.dir, side.below.as_deref())?;
        let data = match plan.has_data() {
            true => {
                let create = DataFile::create(scratch.path(), scratch.below(), plan.size, slot);
                Some(create.map_err(|error| side.failed("write a file", &error))?)
            }
            false => None,
        };
        let series = plan.cases.iter().map(|case| Series::new(side, &case.name)).collect();
        Ok(Worker { side: side.clone(), scratch, data, series })
    }

    fn files(&self, plan: &Plan) -> Result<Option<Files>> {
        if !plan.has_metadata() {
            return Ok(None);
        }
        let files = Files::new(self.scratch.path(), plan.files);
        files.map(Some).map_err(|error| self.side.failed("create a directory", &error))
    }

    fn step(&self, case: &Case, files: Option<&mut Files>, slot: &Slot<'_>) -> io::Result<Sample> {
        match (case.work, &self.data, files) {
            (Work::Data { access, random, block, direct, cache }, Some(data), _) => {
                data.run(Mode { access, random, block, direct, cache }, slot)
            }
            (Work::Metadata(work), _, Some(files)) => run_metadata(files, work, slot),
            _ => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}
