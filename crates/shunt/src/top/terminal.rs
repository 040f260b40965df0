//! The terminal: full screen without line editing while the display runs, and as it was before whenever it ends or stops: by a key, a
//! signal, an error or a panic.

use std::mem::{self, ManuallyDrop};
use std::sync::atomic::{AtomicBool, Ordering};
use std::{io, panic, ptr};

use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::{DefaultTerminal, Frame, Terminal};
use rustix::process::{Signal, kill_current_process_group};

/// The terminal has to be restored. Leaving the alternate screen twice would move the cursor back, over the message of a panic.
static IN_FULL_SCREEN: AtomicBool = AtomicBool::new(false);

/// The terminal in full screen; restored on drop.
pub struct FullScreen {
    /// Never dropped: the destructor of ratatui prints an error if the terminal was closed, and a failed print to that terminal is a
    /// panic.
    terminal: ManuallyDrop<DefaultTerminal>,
}

impl FullScreen {
    /// Takes over the terminal. A panic of any thread restores it, and then prints its message.
    ///
    /// # Errors
    /// Standard output is not a terminal that can be controlled.
    pub fn enter() -> io::Result<Self> {
        let hook = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let _ = restore();
            hook(info);
        }));
        let terminal = take_over().and_then(|()| Terminal::new(CrosstermBackend::new(io::stdout())));
        let terminal = terminal.inspect_err(|_| drop(restore()))?;
        Ok(FullScreen { terminal: ManuallyDrop::new(terminal) })
    }

    /// Draws a frame.
    ///
    /// # Errors
    /// The terminal cannot be written.
    pub fn draw(&mut self, render: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        self.terminal.draw(render).map(drop)
    }

    /// Draws all of the next frame, not only what changed.
    ///
    /// # Errors
    /// The terminal cannot be written.
    pub fn clear(&mut self) -> io::Result<()> {
        // `Terminal::clear` asks the terminal for the position of the cursor, and the thread that reads keys would take the reply.
        execute!(io::stdout(), Clear(ClearType::All))?;
        // The next frame is compared with an empty one.
        self.terminal.swap_buffers();
        Ok(())
    }

    /// Restores the terminal, stops the job, and takes the terminal over again once the job continues.
    ///
    /// # Errors
    /// The terminal cannot be restored, or not be taken over again.
    pub fn suspend(&mut self) -> io::Result<()> {
        restore()?;
        stop_job()?;
        self.resume()
    }

    /// Takes the terminal over again after this process was stopped: the shell had it meanwhile.
    ///
    /// # Errors
    /// The terminal cannot be controlled.
    pub fn resume(&mut self) -> io::Result<()> {
        // crossterm does not turn on raw mode that it believes to be on. The next frame hides the cursor again.
        restore()?;
        take_over()?;
        self.clear()
    }
}

impl Drop for FullScreen {
    fn drop(&mut self) {
        // There is no better way to report that the terminal is gone.
        let _ = restore();
    }
}

fn take_over() -> io::Result<()> {
    IN_FULL_SCREEN.store(true, Ordering::Relaxed);
    enable_raw_mode()?;
    execute!(io::stdout(), EnterAlternateScreen)
}

/// Restores as much as possible, and returns the last error.
fn restore() -> io::Result<()> {
    if !IN_FULL_SCREEN.swap(false, Ordering::Relaxed) {
        return Ok(());
    }
    let line_editing = disable_raw_mode();
    execute!(io::stdout(), LeaveAlternateScreen, Show).and(line_editing)
}

/// Sends SIGTSTP with its default action to all processes of the job, as the terminal does at Ctrl-Z unless it is in raw mode. Returns
/// once the job continues. In contrast to SIGSTOP, the kernel discards it in a job that no shell could continue.
fn stop_job() -> io::Result<()> {
    // SAFETY: all zeros are a valid `sigaction`: the default action, no flags, no blocked signals.
    let default: libc::sigaction = unsafe { mem::zeroed() };
    // SAFETY: as above.
    let mut handler: libc::sigaction = unsafe { mem::zeroed() };
    // SAFETY: both are valid for the call. The default action runs no code of this program.
    if unsafe { libc::sigaction(libc::SIGTSTP, &raw const default, &raw mut handler) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let stopped = kill_current_process_group(Signal::TSTP);
    // SAFETY: this is the handler that was installed before.
    if unsafe { libc::sigaction(libc::SIGTSTP, &raw const handler, ptr::null_mut()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(stopped?)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{IsTerminal, Read};
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
    use std::process::Command;

    use super::*;

    /// A pseudo-terminal: the side of the emulator, which is read without waiting, and the side of programs.
    fn pseudo_terminal() -> (File, OwnedFd) {
        let (mut emulator, mut programs) = (-1, -1);
        let size = libc::winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        // SAFETY: all pointers are valid for the call, or null where that is allowed.
        let opened = unsafe {
            libc::openpty(&raw mut emulator, &raw mut programs, ptr::null_mut(), ptr::null(), &raw const size)
        };
        assert_eq!(opened, 0);
        // SAFETY: the call returned these descriptors, and nothing else owns them.
        let (emulator, programs) = unsafe { (File::from_raw_fd(emulator), OwnedFd::from_raw_fd(programs)) };
        rustix::io::ioctl_fionbio(&emulator, true).unwrap();
        (emulator, programs)
    }

    /// The flags for input, output, control and local modes.
    fn modes(terminal: &OwnedFd) -> [libc::tcflag_t; 4] {
        // SAFETY: all zeros are a valid `termios`.
        let mut modes: libc::termios = unsafe { mem::zeroed() };
        // SAFETY: the pointer is valid for the call.
        assert_eq!(unsafe { libc::tcgetattr(terminal.as_raw_fd(), &raw mut modes) }, 0);
        [modes.c_iflag, modes.c_oflag, modes.c_cflag, modes.c_lflag]
    }

    #[test]
    fn a_panic_restores_the_terminal_and_then_prints_its_message() {
        let (mut emulator, programs) = pseudo_terminal();
        let before = modes(&programs);
        let side = || programs.try_clone().unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "top::terminal::tests::panics_in_full_screen", "--ignored", "--nocapture"])
            .env("RUST_BACKTRACE", "0")
            .stdin(side())
            .stdout(side())
            .stderr(side())
            .spawn()
            .unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(101));
        let mut output = Vec::new();
        assert_eq!(emulator.read_to_end(&mut output).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        let output = String::from_utf8_lossy(&output);
        let at = |text: &str| output.find(text).unwrap_or_else(|| panic!("no {text:?} in {output:?}"));
        let order = ["\x1b[?1049h", "\x1b[?25l", "\x1b[?1049l", "\x1b[?25h", "a message"].map(at);
        assert!(order.is_sorted() && output.matches("\x1b[?1049l").count() == 1, "{output:?}");
        assert_eq!(modes(&programs), before);
    }

    #[test]
    #[ignore = "another test starts it in a pseudo-terminal"]
    fn panics_in_full_screen() {
        if io::stdout().is_terminal() {
            let mut screen = FullScreen::enter().unwrap();
            screen.draw(|_| {}).unwrap();
            screen.draw(|_| panic!("a message")).unwrap();
        }
    }
}
