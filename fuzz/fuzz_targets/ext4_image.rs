//! An ext4 image with fields of its structures changed and their sums filled in; then all of it is read, and written to.

#![no_main]

use libfuzzer_sys::fuzz_target;
use shunt_ext4_hostile::{Input, Mutant, survive};

fuzz_target!(|bytes: &[u8]| {
    let mut input = Input(bytes);
    let mutant = Mutant::structured(&mut input);
    survive(&mutant, input);
});
