//! `shunt top`: what it reports about real mounts, and that it leaves the terminal as it was.

mod load;
mod once;
mod terminal;
