//! The terminal: its modes, its keys, and its restoration at every end of the program.

use std::io::{self, BufWriter, IsTerminal, Stdout};
use std::panic;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::event::{self, Event, KeyEvent};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    DisableLineWrap, EnableLineWrap, EnterAlternateScreen, LeaveAlternateScreen,
};
use ratatui::{Frame, Terminal};
use rustix::process::{Signal, kill_current_process_group};
use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr};
use tokio::signal::unix::{self, SignalKind, signal};
use tokio::sync::mpsc;

use super::keys::Reply;

/// Number of unread keys. Beyond it, keys wait in the terminal.
const KEYS: usize = 64;

/// Time after a request to stop until the process runs again without having been stopped, because no shell can continue it.
const STOP: Duration = Duration::from_millis(100);

/// An input event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cli) enum Input {
    Key(KeyEvent),
    /// The screen has another size, or the process was stopped and continues.
    Changed(Reply),
}

/// The screen. Restores the terminal when dropped, and before the message of a panic is printed.
#[derive(Debug)]
pub(in crate::cli) struct Screen {
    modes: Modes,
    terminal: Terminal<CrosstermBackend<BufWriter<Stdout>>>,
    inputs: mpsc::Receiver<Input>,
    /// The process continues after it was stopped.
    continued: unix::Signal,
}

impl Screen {
    /// Reports whether standard input and output are terminals.
    pub(in crate::cli) fn is_possible() -> bool {
        io::stdin().is_terminal() && io::stdout().is_terminal()
    }

    /// Takes over the terminal. Must be called within a runtime. Returns `None` if standard input or output is not a terminal.
    ///
    /// # Errors
    /// If the terminal cannot be configured.
    pub(in crate::cli) fn take() -> io::Result<Option<Self>> {
        if !Self::is_possible() {
            return Ok(None);
        }
        let continued = signal(SignalKind::from_raw(Signal::CONT.as_raw()))?;
        let modes = Modes::read()?;
        modes.set()?;
        // From here on, `modes` restores the terminal if an error occurs.
        let terminal = Terminal::new(CrosstermBackend::new(BufWriter::new(io::stdout())))?;
        let (sender, inputs) = mpsc::channel(KEYS);
        // The thread ends with the process: a blocking read cannot be interrupted, and unread keys do not matter.
        thread::Builder::new().name("keys".into()).spawn(move || {
            while let Ok(event) = event::read() {
                let sent = match event {
                    Event::Key(key) => sender.blocking_send(Input::Key(key)),
                    Event::Resize(..) => sender.blocking_send(Input::Changed(Reply::Draw)),
                    Event::FocusGained | Event::FocusLost | Event::Mouse(_) | Event::Paste(_) => Ok(()),
                };
                if sent.is_err() {
                    return;
                }
            }
        })?;
        Ok(Some(Self { modes, terminal, inputs, continued }))
    }

    /// Waits for the next input. Returns `None` if the terminal is gone.
    pub(in crate::cli) async fn input(&mut self) -> Option<Input> {
        tokio::select! {
            input = self.inputs.recv() => input,
            // Another program or the shell may have changed the terminal while the process was stopped.
            _ = self.continued.recv() => Some(Input::Changed(Reply::Redraw)),
        }
    }

    /// Draws the screen.
    ///
    /// # Errors
    /// If the terminal is gone.
    pub(in crate::cli) fn show(&mut self, draw: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        self.terminal.draw(draw).map(|_| ())
    }

    /// Applies an input and those that have arrived already, each key by `press`. Returns whether the view goes on.
    ///
    /// # Errors
    /// If the terminal is gone.
    pub(in crate::cli) async fn apply(
        &mut self,
        input: Input,
        mut press: impl FnMut(KeyEvent) -> Reply,
    ) -> io::Result<bool> {
        let mut next = Some(input);
        while let Some(input) = next {
            let reply = match input {
                Input::Key(key) => press(key),
                Input::Changed(reply) => reply,
            };
            match reply {
                Reply::Draw => {}
                Reply::Redraw => self.renew()?,
                Reply::Suspend => self.suspend().await?,
                Reply::Quit => return Ok(false),
            }
            next = self.inputs.try_recv().ok();
        }
        Ok(true)
    }

    /// Sets the modes of the terminal again and forgets what is on the screen, so that the next drawing writes every cell.
    ///
    /// # Errors
    /// If the terminal is gone.
    fn renew(&mut self) -> io::Result<()> {
        self.modes.set()?;
        // `Terminal::clear` would ask the terminal for the position of the cursor, and the answer would be read as keys.
        let size = self.terminal.size()?;
        self.terminal.resize(size.into())
    }

    /// Gives the terminal back and stops the process group, as Ctrl-Z does. Takes the terminal again when the process continues.
    ///
    /// # Errors
    /// If the terminal is gone.
    async fn suspend(&mut self) -> io::Result<()> {
        self.modes.restore();
        kill_current_process_group(Signal::TSTP)?;
        // Another thread may receive the signal: the process stops within this time. It also continues within it.
        tokio::time::sleep(STOP).await;
        self.renew()
    }
}

/// The modes of the terminal before and during the display.
#[derive(Debug)]
struct Modes {
    before: Termios,
    during: Termios,
    /// Whether the terminal has the modes of the display.
    set: Arc<AtomicBool>,
}

impl Modes {
    /// Reads the present modes. A panic of this thread restores them from now on.
    fn read() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut during = before.clone();
        // Keys are read immediately and not echoed. Ctrl-C still sends a signal.
        during.local_modes &= !(LocalModes::ICANON | LocalModes::ECHO | LocalModes::IEXTEN);
        during.special_codes[SpecialCodeIndex::VMIN] = 1;
        during.special_codes[SpecialCodeIndex::VTIME] = 0;
        // Ctrl-Z and Ctrl-\ are keys: a signal would stop or end the program on the alternate screen.
        during.special_codes[SpecialCodeIndex::VSUSP] = 0;
        during.special_codes[SpecialCodeIndex::VQUIT] = 0;
        let modes = Self { before, during, set: Arc::default() };
        modes.restore_at_panic();
        Ok(modes)
    }

    /// Adds to the handler of panics that it restores the terminal first. Panics of other threads are not the end of the display.
    fn restore_at_panic(&self) {
        let (before, set, own) = (self.before.clone(), Arc::clone(&self.set), thread::current().id());
        let print = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            if thread::current().id() == own && set.swap(false, Ordering::Relaxed) {
                restore(&before);
            }
            print(panic);
        }));
    }

    fn set(&self) -> io::Result<()> {
        self.set.store(true, Ordering::Relaxed);
        tcsetattr(io::stdin(), OptionalActions::Now, &self.during)?;
        execute!(io::stdout(), EnterAlternateScreen, DisableLineWrap, Hide)
    }

    fn restore(&self) {
        if self.set.swap(false, Ordering::Relaxed) {
            restore(&self.before);
        }
    }
}

impl Drop for Modes {
    fn drop(&mut self) {
        self.restore();
    }
}

/// Gives the terminal back. If it is gone, there is nothing to restore.
fn restore(before: &Termios) {
    let left = execute!(io::stdout(), EnableLineWrap, LeaveAlternateScreen, Show);
    if tcsetattr(io::stdin(), OptionalActions::Now, before).is_err() || left.is_err() {
        tracing::debug!("cannot restore the terminal");
    }
}
