//! Tests of handlers that wait, block, panic, and are interrupted.

use std::sync::atomic::Ordering;
use std::time::Duration;

use proptest::prelude::*;
use shunt_fuse::Errno;
use shunt_fuse_abi::Operation;

use crate::common::{read, serve, until, write};

const HANDLER_DELAY: Duration = Duration::from_millis(50);

#[test]
fn waiting_handlers_stall_no_other_and_end_out_of_order() {
    let kernel = serve(1, 1);
    let pending: Vec<_> = (0..100).map(|i| read(&kernel, i)).collect();
    kernel.getattr(1).unwrap();
    assert_eq!(kernel.session().waiting_requests(), 100);
    for (i, pending) in pending.into_iter().enumerate().rev() {
        assert!(pending.poll().is_none());
        kernel.fs().gate(i as u64).open();
        assert_eq!(pending.wait().unwrap(), (i as u64).to_ne_bytes());
    }
    until("no handler waits", || kernel.session().waiting_requests() == 0);
    kernel.finish();
}

/// A wait ends on another thread at the moment when the reading thread lists it.
#[test]
fn handler_that_ends_as_it_begins_to_wait_leaves_the_list() {
    let kernel = serve(1, 1);
    std::thread::scope(|scope| {
        let (gates, opened) = std::sync::mpsc::channel();
        let kernel = &kernel;
        scope.spawn(move || opened.into_iter().for_each(|gate| kernel.fs().gate(gate).open()));
        for gate in 0..20_000 {
            let pending = read(kernel, gate);
            gates.send(gate).unwrap();
            pending.wait().unwrap();
        }
    });
    until("no handler waits", || kernel.session().waiting_requests() == 0);
    kernel.finish();
}

#[test]
fn an_interrupted_read_is_answered_at_once() {
    let kernel = serve(2, 4);
    let pending = read(&kernel, 0);
    until("the read waits", || kernel.session().waiting_requests() == 1);
    kernel.interrupt(pending.unique());
    assert_eq!(pending.wait(), Err(Errno::INTR));
    assert_eq!(kernel.session().statistics().cancelled, 1);
    kernel.finish();
}

#[test]
fn an_interrupted_write_is_told_and_answers_by_itself() {
    let kernel = serve(2, 4);
    let pending = write(&kernel, 0);
    until("the write waits", || kernel.session().waiting_requests() == 1);
    kernel.interrupt(pending.unique());
    assert_eq!(pending.wait(), Err(Errno::INTR));
    assert_eq!(kernel.fs().interrupted.load(Ordering::SeqCst), 1);
    kernel.finish();
}

#[test]
fn an_interrupt_right_behind_its_request_finds_it() {
    let kernel = serve(4, 8);
    for i in 0..300 {
        let pending = if i % 2 == 0 { read(&kernel, i) } else { write(&kernel, i) };
        kernel.interrupt(pending.unique());
        assert_eq!(pending.wait(), Err(Errno::INTR));
    }
    until("no handler waits", || kernel.session().waiting_requests() == 0);
    kernel.finish();
}

/// With two reading threads, the one with the INTERRUPT can be faster than the one with the request.
#[test]
fn an_interrupt_that_overtakes_its_request_finds_it() {
    let kernel = serve(2, 4);
    for round in 0..50 {
        let before = read(&kernel, 2 * round);
        let unique = before.unique() + 2;
        kernel.interrupt(unique);
        let interrupts = || kernel.session().statistics().count(shunt_fuse::Opcode::Interrupt);
        until("the interrupt is read", || interrupts() == 2 * round + 1);
        let overtaken = read(&kernel, 2 * round + 1);
        assert_eq!(overtaken.unique(), unique);
        assert_eq!(overtaken.wait(), Err(Errno::INTR));
        kernel.interrupt(before.unique());
        assert_eq!(before.wait(), Err(Errno::INTR));
        until("the interrupt is read", || interrupts() == 2 * round + 2);
    }
    kernel.finish();
}

#[test]
fn interrupt_after_the_reply_is_ignored() {
    let kernel = serve(2, 4);
    kernel.interrupt(999_998);
    let answered = kernel.submit(1, &Operation::Statfs);
    let unique = answered.unique();
    answered.wait().unwrap();
    (0..3000).for_each(|_| kernel.interrupt(unique));
    kernel.getattr(1).unwrap();
    kernel.finish();
}

#[test]
fn forty_blocked_handlers_stall_no_other_and_their_threads_exit() {
    let kernel = serve(2, 64);
    let blocked: Vec<_> = (0..40).map(|i| kernel.submit(100 + i, &Operation::Readlink)).collect();
    kernel.getattr(1).unwrap();
    until("all forty run", || kernel.fs().entered.load(Ordering::SeqCst) == 40);
    assert!(kernel.session().threads() > 40);
    kernel.getattr(1).unwrap();
    assert!(blocked[0].wait_for(HANDLER_DELAY).is_none());
    kernel.fs().open_all();
    for pending in blocked {
        assert_eq!(pending.wait().unwrap(), b"target");
    }
    // They exit one at a time, each after a request.
    let limit = kernel.session().threads();
    until("threads leave", || {
        kernel.getattr(1).unwrap();
        kernel.session().threads() <= limit - 3
    });
    kernel.finish();
}

#[test]
fn more_blocked_handlers_than_threads_wait_their_turn() {
    let kernel = serve(2, 8);
    let blocked: Vec<_> = (0..30).map(|i| kernel.submit(100 + i, &Operation::Readlink)).collect();
    until("as many run as may", || kernel.fs().entered.load(Ordering::SeqCst) == 8);
    std::thread::sleep(HANDLER_DELAY);
    assert!(kernel.session().threads() <= 8);
    (0..30).for_each(|i| kernel.fs().gate(100 + i).open());
    blocked.into_iter().for_each(|pending| assert!(pending.wait().is_ok()));
    kernel.finish();
}

#[test]
fn the_end_of_the_connection_ends_waiting_handlers() {
    let kernel = serve(2, 4);
    let pending: Vec<_> = (0..20).map(|i| read(&kernel, i)).collect();
    until("all wait", || kernel.session().waiting_requests() == 20);
    kernel.hang_up();
    pending.into_iter().for_each(|pending| assert_eq!(pending.wait(), Err(Errno::NOTCONN)));
    kernel.finish();
}

#[test]
fn reads_of_closed_gates_do_not_reach_others() {
    let kernel = serve(2, 4);
    let (first, second) = (read(&kernel, 1), read(&kernel, 2));
    until("both wait", || kernel.session().waiting_requests() == 2);
    kernel.interrupt(first.unique());
    assert_eq!(first.wait(), Err(Errno::INTR));
    assert!(second.wait_for(HANDLER_DELAY).is_none());
    kernel.fs().gate(2).open();
    assert_eq!(second.wait().unwrap(), 2_u64.to_ne_bytes());
    kernel.finish();
}

#[derive(Debug, Clone)]
enum Action {
    Read(u64),
    Write(u64),
    Stat,
    Open(u64),
    Interrupt(usize),
    Again(usize),
}

fn act() -> impl Strategy<Value = Action> {
    prop_oneof![
        4 => (0..16_u64).prop_map(Action::Read),
        3 => (0..16_u64).prop_map(Action::Write),
        1 => Just(Action::Stat),
        2 => (0..16_u64).prop_map(Action::Open),
        4 => any::<usize>().prop_map(Action::Interrupt),
        1 => any::<usize>().prop_map(Action::Again),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    /// The mock kernel treats a second reply to one request as a violation, so this only checks that each request has one.
    #[test]
    fn a_storm_of_interrupts_loses_and_doubles_no_reply(acts in prop::collection::vec(act(), 1..400)) {
        let kernel = serve(3, 8);
        let mut sent = Vec::new();
        for act in acts {
            match act {
                Action::Read(gate) => sent.push(read(&kernel, gate)),
                Action::Write(gate) => sent.push(write(&kernel, gate)),
                Action::Stat => sent.push(kernel.submit(1, &Operation::Statfs)),
                Action::Open(gate) => kernel.fs().gate(gate).open(),
                Action::Interrupt(which) if !sent.is_empty() => kernel.interrupt(sent[which % sent.len()].unique()),
                Action::Again(which) if !sent.is_empty() => {
                    (0..5).for_each(|_| kernel.interrupt(sent[which % sent.len()].unique()));
                }
                _ => {}
            }
        }
        (0..16).for_each(|gate| kernel.fs().gate(gate).open());
        for pending in sent {
            prop_assert!(matches!(pending.wait(), Ok(_) | Err(Errno::INTR)));
        }
        prop_assert_eq!(kernel.under_way(), 0);
        until("no handler waits", || kernel.session().waiting_requests() == 0);
        kernel.finish();
    }
}
