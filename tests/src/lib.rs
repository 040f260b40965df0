//! Support for the whole-system tests.
//!
//! A test body gets a [`Fixture`]: a source directory and a mirror of it. With `SHUNT_TEST_NATIVE=1` the mirror is the source
//! itself, so the same bodies run against the kernel's own file systems. That run must pass, which validates the tests.
//!
//! | variable | meaning |
//! |---|---|
//! | `SHUNT_BIN` | the command under test; otherwise the one built with these tests |
//! | `SHUNT_TOOLS` | where `tests/setup` puts what it builds; otherwise `shunt/tools` in `XDG_CACHE_HOME` or `~/.cache` |
//! | `SHUNT_LAB` | set inside the virtual machine of `lab/`: the command is `shunt` from `PATH`, time limits are longer |
//! | `SHUNT_TEST_NATIVE` | run the bodies in a plain directory |
//! | `SHUNT_TEST_EXT4` | a directory on ext4 to hold sources; otherwise one is looked for, then made on a loop device |
//! | `CI` | `true` turns every skip into a failure |

pub mod binary;
pub mod casefold_fs;
pub mod exporter;
pub mod fixture;
pub mod fscrypt;
pub mod fsx;
pub mod geotagged_jpeg;
pub mod getdents;
pub mod image;
pub mod line_process;
pub mod lower_fs;
pub mod metadata_tree;
pub mod mount_namespace;
pub mod mounts;
pub mod pjdfstest;
pub mod polling;
pub mod power_cut_disk;
pub mod rng;
pub mod sys;
pub mod tmux;
pub mod unprivileged;
pub mod volume;

pub use fixture::{Fixture, Plan};
pub use image::Image;
pub use lower_fs::Lower;
pub use rng::Rng;
pub use volume::Volume;

/// Expands test bodies `fn name(fixture: &Fixture)` to one test for each lower file system.
///
/// `tmpfs` and `ext4` name the lower file system, with passthrough of file data if the kernel supports it. `daemon` is tmpfs
/// with the data going through the daemon.
#[macro_export]
macro_rules! behaviours {
    (on $config:ident: $($name:ident),* $(,)?) => {
        $crate::behaviours!(on $config as $config: $($name),*);
    };
    (on $config:ident as $module:ident: $($name:ident),* $(,)?) => {
        mod $module {
            $(
                #[test]
                fn $name() {
                    $crate::fixture::perform($crate::Plan::$config(), super::$name);
                }
            )*
        }
    };
    (everywhere: $($name:ident),* $(,)?) => {
        $crate::behaviours!(on tmpfs: $($name),*);
        $crate::behaviours!(on ext4: $($name),*);
        $crate::behaviours!(on daemon: $($name),*);
        $crate::behaviours!(on no_open: $($name),*);
    };
}
