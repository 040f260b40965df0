//! Mutated images in a fixed order: nothing panics, hangs or accesses the device out of bounds, whatever the mutation.
//!
//! `HOSTILE_INPUT=image:PATH` (or `raw:PATH`) adds an input found by a fuzz target.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use shunt_ext4_hostile::{Input, KINDS, Mutant, images, survive};

use crate::rng::Rng;

#[test]
fn sound_images_are_read_and_written() {
    for image in images() {
        let survived = survive(&Mutant::sound(image), Input(&[]));
        println!("{}: {survived:?}", image.name);
        assert!(survived.names > 50, "{}: {survived:?}", image.name);
        let kinds: BTreeMap<_, _> =
            image.structures.sites.iter().map(|(kind, sites)| (kind, sites.len())).collect();
        println!("  {kinds:?}");
        let readable_only = matches!(image.name, "inline" | "clusters" | "meta_groups");
        assert!(readable_only == (survived.worked == 0), "{}: {survived:?}", image.name);
    }
}

#[test]
fn every_kind_of_structure_is_there() {
    for kind in KINDS {
        assert!(images().iter().any(|image| image.structures.sites.contains_key(&kind)), "{kind:?}");
    }
}

/// Without mutations, repair changes nothing: its checksums equal those written by the kernel.
#[test]
fn sums_are_those_of_the_kernel() {
    for (number, image) in images().iter().enumerate() {
        let mutant = Mutant::structured(&mut Input(&[number as u8]));
        let bytes = mutant.bytes();
        let wrong: Vec<_> = (0..bytes.len()).filter(|&at| bytes[at] != image.bytes[at]).collect();
        let at = |at: usize| {
            image
                .structures
                .sites
                .values()
                .flatten()
                .find(move |site| (site.start..site.start + site.length).contains(&at))
        };
        assert!(
            wrong.is_empty(),
            "{}: {:?}",
            image.name,
            wrong.iter().map(|&place| (place, at(place))).take(5).collect::<Vec<_>>()
        );
    }
}

#[test]
fn structures_are_changed() {
    let mut rng = Rng(42);
    for _ in 0..500 {
        let bytes = rng.bytes(160);
        let mut input = Input(&bytes);
        let mutant = Mutant::structured(&mut input);
        survive(&mutant, input);
    }
}

#[test]
fn bytes_are_changed() {
    let mut rng = Rng(43);
    for _ in 0..200 {
        let bytes = rng.bytes(400);
        let mut input = Input(&bytes);
        let mutant = Mutant::raw(&mut input);
        survive(&mutant, input);
    }
}

fn run(kind: &str, path: &Path) {
    println!("{}", path.display());
    let bytes = fs::read(path).unwrap();
    let mut input = Input(&bytes);
    let mutant = match kind {
        "image" => Mutant::structured(&mut input),
        _ => Mutant::raw(&mut input),
    };
    println!("{}: {:?}", mutant.image.name, survive(&mutant, input));
}

/// Replays inputs that once found a bug and are named after it, in `inputs/image` and `inputs/raw`.
#[test]
fn kept_inputs_find_nothing() {
    for kind in ["image", "raw"] {
        let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("inputs").join(kind);
        for input in fs::read_dir(kept).into_iter().flatten() {
            run(kind, &input.unwrap().path());
        }
    }
    if let Some(input) = std::env::var_os("HOSTILE_INPUT") {
        let input = input.into_string().unwrap();
        let (kind, path) = input.split_once(':').expect("image:PATH or raw:PATH");
        run(kind, &PathBuf::from(path));
    }
}
