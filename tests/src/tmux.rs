//! A terminal of known size, by tmux: keys go in, and the screen comes out as text.

use std::process::Command;
use std::time::Duration;

use shunt_test_support::cmd::{Ran, run, within};
use tempfile::TempDir;

/// A shell in a terminal, on a server of its own; ended on drop.
#[derive(Debug)]
pub struct Tmux {
    dir: TempDir,
}

impl Tmux {
    /// Starts an interactive shell in a terminal of this size.
    ///
    /// # Panics
    /// If tmux does not start.
    #[track_caller]
    pub fn start(width: u16, height: u16) -> Self {
        let tmux = Self { dir: tempfile::tempdir().expect("a directory") };
        let (width, height) = (width.to_string(), height.to_string());
        // No core file at SIGQUIT. The shell replaces the one that tmux starts, so that programs are its children.
        let shell = "ulimit -c 0; exec env PS1='ready$ ' sh -i";
        tmux.tmux(&["-f", "/dev/null", "new-session", "-d", "-x", &width, "-y", &height, shell]).ok();
        assert!(tmux.shows(&["ready$"]), "{}", tmux.screen());
        tmux
    }

    fn tmux(&self, args: &[&str]) -> Ran {
        let mut command = Command::new("tmux");
        command.arg("-S").arg(self.dir.path().join("socket")).args(args);
        run(command.env_remove("TMUX").env("TERM", "xterm-256color").env("LC_ALL", "C.UTF-8"))
    }

    /// Types a text as it is.
    #[track_caller]
    pub fn types(&self, text: &str) {
        self.tmux(&["send-keys", "-l", "--", text]).ok();
    }

    /// Presses a key by its name in tmux: `Enter`, `C-c`, ...
    #[track_caller]
    pub fn press(&self, key: &str) {
        self.tmux(&["send-keys", key]).ok();
    }

    /// Types a command and Enter.
    #[track_caller]
    pub fn enter(&self, command: &str) {
        self.types(command);
        self.press("Enter");
    }

    /// Returns the text on the screen.
    #[track_caller]
    pub fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p"]).ok()
    }

    /// Waits until all these texts are on the screen, for 20 seconds at most.
    pub fn shows(&self, texts: &[&str]) -> bool {
        self.until(|screen| texts.iter().all(|text| screen.contains(text)))
    }

    /// Waits until the screen is as expected, for 20 seconds at most.
    pub fn until(&self, expected: impl Fn(&str) -> bool) -> bool {
        within(Duration::from_secs(20), || expected(&self.screen()))
    }

    /// Changes the size of the terminal.
    #[track_caller]
    pub fn resize(&self, width: u16, height: u16) {
        let (width, height) = (width.to_string(), height.to_string());
        self.tmux(&["resize-window", "-x", &width, "-y", &height]).ok();
    }

    /// Returns the value of a format of tmux, such as `#{alternate_on}`.
    #[track_caller]
    pub fn value(&self, format: &str) -> String {
        self.tmux(&["display-message", "-p", format]).ok().trim().to_owned()
    }

    /// Reports whether the terminal is as a shell expects it: no full-screen program, a visible cursor, and echo. Types a command.
    pub fn is_restored(&self) -> bool {
        let modes = || self.value("#{alternate_on} #{cursor_flag}") == "0 1";
        let settings = self.dir.path().join("settings");
        let _ = std::fs::remove_file(&settings);
        self.enter(&format!("stty -a > {}", settings.display()));
        let sane = || {
            let text = std::fs::read_to_string(&settings).unwrap_or_default();
            ["icanon", "echo", "isig", "icrnl", "opost"]
                .iter()
                .all(|wanted| text.split_whitespace().any(|word| word == *wanted))
        };
        within(Duration::from_secs(10), || modes() && sane())
    }

    /// Returns the process id of the program that the shell runs or has stopped.
    ///
    /// # Panics
    /// If there is none.
    #[track_caller]
    pub fn program(&self) -> u32 {
        let shell = self.value("#{pane_pid}");
        let children = std::fs::read_to_string(format!("/proc/{shell}/task/{shell}/children"));
        let children = children.expect("the shell runs");
        let youngest = children.split_whitespace().next_back().expect("the shell runs a program");
        youngest.parse().expect("a process id")
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        let _ = self.tmux(&["kill-server"]);
    }
}
