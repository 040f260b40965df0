//! A file system to be served, open already or opened later inside the sandbox.

use std::fmt;
use std::sync::{Arc, OnceLock};

use crate::error::Result;

type Open<F> = Box<dyn FnOnce() -> Result<Arc<F>>>;

/// A file system that is open, or that is to be opened once it is mounted and the process is sandboxed.
pub struct Source<F> {
    opened: Arc<OnceLock<Arc<F>>>,
    open: Option<Open<F>>,
}

impl<F> Source<F> {
    /// Makes a source that is opened later: `open` is called in the sandbox, since the bytes it reads are untrusted.
    pub fn deferred(open: impl FnOnce() -> Result<Arc<F>> + 'static) -> Self {
        Self { opened: Arc::default(), open: Some(Box::new(open)) }
    }

    /// Reports whether it is still to be opened.
    pub fn is_closed(&self) -> bool {
        self.open.is_some()
    }

    /// Opens it, or returns the file system opened before.
    ///
    /// # Errors
    /// The errors of opening it, once.
    pub fn open(&mut self) -> Result<Arc<F>> {
        if let Some(open) = self.open.take() {
            let fs = open()?;
            return Ok(self.opened.get_or_init(|| fs).clone());
        }
        self.get().ok_or_else(|| crate::error::failed("the file system could not be opened"))
    }

    /// The file system, once it is open.
    pub fn get(&self) -> Option<Arc<F>> {
        self.opened.get().cloned()
    }

    /// A function that queries the file system; it returns the default while that is not open yet.
    pub fn query<T>(&self, ask: fn(&F) -> T) -> impl Fn() -> T + Send + Sync + use<T, F>
    where
        F: Send + Sync + 'static,
        T: Default + 'static,
    {
        let opened = self.opened.clone();
        move || opened.get().map_or_else(T::default, |fs| ask(fs))
    }

    /// Wraps a file system around this one.
    pub fn wrap<G>(self, around: impl FnOnce(Arc<F>) -> G + 'static) -> Source<G>
    where
        F: 'static,
    {
        match (self.open, self.opened.get()) {
            (Some(open), _) => Source::deferred(|| Ok(Arc::new(around(open()?)))),
            (None, Some(fs)) => Arc::new(around(fs.clone())).into(),
            (None, None) => Source { opened: Arc::default(), open: None },
        }
    }
}

impl<F> From<Arc<F>> for Source<F> {
    fn from(fs: Arc<F>) -> Self {
        Self { opened: Arc::new(OnceLock::from(fs)), open: None }
    }
}

impl<F> fmt::Debug for Source<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source").field("is_closed", &self.is_closed()).finish_non_exhaustive()
    }
}
