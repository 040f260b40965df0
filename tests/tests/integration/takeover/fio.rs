//! fio writes data and verifies all of it, while daemons are killed.

use std::process::Command;
use std::time::Duration;

use shunt_test_support::{needs_mount, needs_tools, run_for};
use shunt_tests::{Plan, fixture};

use super::killer::{End, Killer};

fn verify(plan: Plan) {
    needs_mount!();
    needs_tools!("fio");
    fixture::perform(plan.args(&["--crashes", "1000000", "--transport", "dev"]), |s| {
        // In each loop every file is written twice at random offsets, and verified.
        let mut fio = Command::new("fio");
        fio.args([
            "--name=verify",
            "--numjobs=2",
            "--size=8m",
            "--bsrange=512-64k",
            "--rw=randwrite",
            "--loops=4",
        ])
        .args(["--rate=6m", "--verify=crc32c", "--do_verify=1", "--verify_fatal=1", "--verify_state_save=0"])
        .args(["--ioengine=psync", "--fsync=64", "--thread"])
        .arg(format!("--directory={}", s.mnt().display()))
        .current_dir(s.aside());
        let mut killer = Killer::new(s, End::Killed);
        // If processes start slowly, one run of fio is over after few kills.
        while killer.kills.len() < 4 {
            std::thread::scope(|scope| {
                let fio = scope.spawn(|| run_for(50, &mut fio).ok());
                while !fio.is_finished() {
                    killer.strike();
                }
                let output = fio.join().expect("fio");
                assert!(output.contains("err= 0"), "{output}");
            });
        }
        std::thread::sleep(Duration::from_millis(10));
    });
}

#[test]
fn verifies_what_was_passed_through() {
    verify(Plan::ext4());
}

#[test]
fn verifies_what_went_through_the_daemon() {
    verify(Plan::daemon());
}
