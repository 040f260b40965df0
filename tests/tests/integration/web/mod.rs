//! `shunt web`: requests over plain sockets, and the page in a browser.

mod browser;
mod page;
mod requests;
mod server;
