//! `-o relatime,strictatime,noatime,lazytime`: the kernel leaves access times to the file system.

use shunt_ext4fs::{Atime, ReadTimes};

/// Parses the mount options; the last of several counts.
pub fn of(options: &[String]) -> ReadTimes {
    let mut read = ReadTimes::default();
    for option in options.iter().flat_map(|options| options.split(',')) {
        match option {
            "noatime" => read.atime = Atime::Never,
            "atime" | "relatime" | "norelatime" | "nostrictatime" => read.atime = Atime::Relative,
            "strictatime" => read.atime = Atime::Strict,
            "diratime" => read.not_of_directories = false,
            "nodiratime" => read.not_of_directories = true,
            "lazytime" => read.lazy = true,
            "nolazytime" => read.lazy = false,
            _ => {}
        }
    }
    read
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_one_counts() {
        let of = |options: &[&str]| of(&options.iter().map(|&option| option.to_owned()).collect::<Vec<_>>());
        assert_eq!(of(&["ro,suid"]), ReadTimes::default());
        assert_eq!(of(&["strictatime,noatime"]).atime, Atime::Never);
        assert_eq!(of(&["noatime", "lazytime,strictatime"]).atime, Atime::Strict);
        let both = of(&["lazytime,nodiratime"]);
        assert!(both.lazy && both.not_of_directories && both.atime == Atime::Relative);
        assert!(!of(&["lazytime,nolazytime"]).lazy);
    }
}
