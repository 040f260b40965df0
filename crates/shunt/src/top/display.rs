//! The loop of the display: waits for keys, signals and views, each from a thread of its own, and draws.

use std::io;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use ratatui::crossterm::event::{self, Event, KeyEvent, KeyEventKind};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

use super::app::{Action, App};
use super::sampler::{Command, Sampler};
use super::terminal::FullScreen;
use super::ui;
use super::view::View;
use crate::error::{Result, failed};

/// Longest time between two frames, so that the age of an old view is shown.
const REFRESH_INTERVAL: Duration = Duration::from_secs(1);

/// An event that the display waits for.
enum Message {
    Key(KeyEvent),
    Resized,
    View(Result<View>),
    Signal(i32),
    /// A thread ended unexpectedly, for this reason: the terminal is gone, or the thread panicked.
    Ended(String),
}

/// How the display ended.
enum End {
    Quit,
    Signal(i32),
}

/// Shows the mounts until a key or signal ends it.
///
/// # Errors
/// The terminal cannot be used.
pub fn run(app: App) -> Result<()> {
    let (sender, messages) = mpsc::channel();
    // The handlers are installed first, so that no signal ends the process without restoring the terminal.
    let signals = Signals::new([SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGCONT])
        .map_err(|error| failed(format_args!("cannot install signal handlers: {error}")))?;
    let mut screen = FullScreen::enter().map_err(on_terminal)?;
    let commands = start_threads(&sender, signals, app.interval)
        .map_err(|error| failed(format_args!("cannot start a thread: {error}")))?;
    let end = show(app, &mut screen, &messages, &commands);
    drop(screen);
    if let End::Signal(signal) = end? {
        // Callers see that a signal ended it.
        let _ = emulate_default_handler(signal);
    }
    Ok(())
}

fn on_terminal(error: io::Error) -> crate::error::Failure {
    failed(format_args!("cannot use the terminal: {error}; `shunt top --once` needs none"))
}

fn show(
    mut app: App,
    screen: &mut FullScreen,
    messages: &Receiver<Message>,
    commands: &Sender<Command>,
) -> Result<End> {
    loop {
        screen.draw(|frame| ui::draw(frame, &app)).map_err(on_terminal)?;
        let mut next = match messages.recv_timeout(REFRESH_INTERVAL) {
            Ok(message) => Some(message),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return Err(failed("top: all threads ended")),
        };
        // One frame shows the effect of all queued messages.
        while let Some(message) = next {
            let action = match message {
                Message::Key(key) => app.key(key),
                Message::Resized => Action::Draw,
                Message::View(view) => {
                    app.update(view);
                    Action::Draw
                }
                Message::Signal(SIGTSTP) => Action::Suspend,
                Message::Signal(SIGCONT) => {
                    screen.resume().map_err(on_terminal)?;
                    Action::Draw
                }
                Message::Signal(signal) => return Ok(End::Signal(signal)),
                Message::Ended(reason) => return Err(failed(reason)),
            };
            match action {
                Action::Draw => {}
                Action::Quit => return Ok(End::Quit),
                Action::Suspend => screen.suspend().map_err(on_terminal)?,
                Action::SetInterval(interval) => drop(commands.send(Command::SetInterval(interval))),
                Action::ReadNow => {
                    screen.clear().map_err(on_terminal)?;
                    let _ = commands.send(Command::ReadNow);
                }
            }
            next = messages.try_recv().ok();
        }
    }
}

/// The work of a thread that sends messages.
type Work = Box<dyn FnOnce(&Sender<Message>) + Send>;

/// Sends [`Message::Ended`] when its thread ends, also by a panic.
struct Guard(Sender<Message>, &'static str);

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.0.send(Message::Ended(format!("top: {} ended unexpectedly", self.1)));
    }
}

/// Starts the threads that send messages. They are not joined: one that waits for a daemon must not delay the end.
fn start_threads(
    messages: &Sender<Message>,
    mut signals: Signals,
    interval: Duration,
) -> io::Result<Sender<Command>> {
    let spawn = |name: &'static str, work: Work| {
        let sender = messages.clone();
        thread::Builder::new().name(name.to_owned()).spawn(move || {
            let guard = Guard(sender, name);
            work(&guard.0);
        })
    };
    spawn(
        "signals",
        Box::new(move |sender| {
            signals
                .forever()
                .take_while(|signal| sender.send(Message::Signal(*signal)).is_ok())
                .for_each(drop);
        }),
    )?;
    spawn("keys", Box::new(read_keys))?;
    let (commands, requests) = mpsc::channel();
    spawn(
        "sampler",
        Box::new(move |sender| {
            Sampler::default().run(interval, &requests, |view| sender.send(Message::View(view)).is_ok());
        }),
    )?;
    Ok(commands)
}

fn read_keys(sender: &Sender<Message>) {
    loop {
        let message = match event::read() {
            Ok(Event::Key(key)) if key.kind != KeyEventKind::Release => Message::Key(key),
            Ok(Event::Resize(..)) => Message::Resized,
            Ok(_) => continue,
            Err(error) => Message::Ended(format!("cannot read the terminal: {error}")),
        };
        let ended = matches!(message, Message::Ended(_));
        if sender.send(message).is_err() || ended {
            return;
        }
    }
}
