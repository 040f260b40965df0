//! Default transport of requests.

use std::fs;

use serde_json::Value;
use shunt_test_support::rings::{self, SwitchedOff};
use shunt_test_support::{needs_mount, requirement};
use shunt_tests::Image;

/// Creating and removing names is faster over io_uring: it is used if the kernel has it enabled, and its absence is no error. No daemon
/// can take over then, so it is used only where none is to.
#[test]
fn rings_are_taken_where_there_are() {
    needs_mount!();
    requirement!(fs::read_to_string(rings::SWITCH).is_ok_and(|switch| switch.trim() == "Y"), "needs rings");
    let image = Image::make(&[], 16).unwrap();
    let transport = |takeover: &str| {
        let mount = image.by_shunt(&["--transport", "auto", "--takeover", takeover]);
        let stat = mount.stat();
        mount.umount().ok();
        (stat["transport"].clone(), stat["transport_reason"].clone())
    };
    {
        let _kept = rings::keep();
        assert_eq!(transport("off"), ("uring".into(), Value::Null));
        assert_eq!(transport("auto"), ("dev".into(), "over io_uring no other daemon could take over".into()));
    }
    let _off = SwitchedOff::now();
    assert_eq!(transport("off"), ("dev".into(), Value::Null));
    assert_eq!(transport("auto"), ("dev".into(), Value::Null));
}
