//! Fuzz target: changes fields of the structures of an ext4 image, with valid checksums, then reads everything and writes to
//! it.

#![no_main]

use libfuzzer_sys::fuzz_target;
use shunt_ext4_hostile::{Input, Mutant, survive};

fuzz_target!(|bytes: &[u8]| {
    let mut input = Input(bytes);
    let mutant = Mutant::structured(&mut input);
    survive(&mutant, input);
});
