//! The terminal: full screen without line editing while the display runs, and as it was before whenever it ends or stops: by a key, a
//! signal, an error or a panic.

use std::io;

use ratatui::DefaultTerminal;
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{Clear, ClearType, EnterAlternateScreen, enable_raw_mode};
use rustix::process::{Signal, getpid, kill_process};

/// The terminal in full screen; restored on drop.
pub struct FullScreen {
    terminal: DefaultTerminal,
}

impl FullScreen {
    /// Takes over the terminal. A panic of any thread restores it, and then prints its message.
    ///
    /// # Errors
    /// Standard output is not a terminal that can be controlled.
    pub fn enter() -> io::Result<Self> {
        let terminal = ratatui::try_init().inspect_err(|_| drop(ratatui::try_restore()))?;
        Ok(FullScreen { terminal })
    }

    /// Draws a frame.
    ///
    /// # Errors
    /// The terminal cannot be written.
    pub fn draw(&mut self, render: impl FnOnce(&mut ratatui::Frame<'_>)) -> io::Result<()> {
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

    /// Restores the terminal, stops this process as a shell's job control does, and takes the terminal over again once it continues.
    ///
    /// # Errors
    /// The terminal cannot be restored, or not be taken over again.
    pub fn suspend(&mut self) -> io::Result<()> {
        self.terminal.show_cursor()?;
        ratatui::try_restore()?;
        // The handler of SIGTSTP only sends a message: this signal cannot be handled.
        kill_process(getpid(), Signal::STOP)?;
        enable_raw_mode()?;
        execute!(io::stdout(), EnterAlternateScreen)?;
        self.clear()
    }
}

impl Drop for FullScreen {
    fn drop(&mut self) {
        let _ = self.terminal.show_cursor();
        // There is no better way to report that the terminal is gone.
        let _ = ratatui::try_restore();
    }
}
