//! Fuzz target: an ext4 image that e2fsck finds clean, with a few fields changed or none, is still clean after any operations.

#![no_main]

use libfuzzer_sys::fuzz_target;
use shunt_ext4_hostile::{Checker, Input, Mutant, Verdict};

thread_local! {
    static CHECKER: Checker = Checker::new();
}

fuzz_target!(|bytes: &[u8]| {
    let mut input = Input(bytes);
    let mutant = Mutant::structured(&mut input);
    if let Verdict::Spoiled(said) = CHECKER.with(|checker| checker.writing(&mutant, input)) {
        panic!("{}: {said}", mutant.image.name);
    }
});
