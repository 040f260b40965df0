//! An ext4 image that e2fsck calls clean, with a few fields changed or none: after any operations it is clean still.

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
