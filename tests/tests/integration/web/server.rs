//! A running `shunt web`, and requests to it.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{ChildStdout, Stdio};
use std::time::Duration;

use shunt_test_support::cmd::Ended;
use shunt_tests::binary;

/// A running server, ended on drop.
pub struct Server {
    _process: Ended,
    output: BufReader<ChildStdout>,
    /// The link that it printed last.
    pub link: String,
}

impl Server {
    /// Starts it at a free port, with the data directory of a test.
    pub fn start(data: &Path, options: &[&str]) -> Self {
        let mut command = binary::command(&["web", "--listen", "127.0.0.1:0"]);
        command.args(options).env("XDG_DATA_HOME", data).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut process = command.spawn().expect("shunt web");
        let output = BufReader::new(process.stdout.take().expect("a pipe"));
        let mut server = Server { _process: Ended(process), output, link: String::new() };
        server.read_link();
        server
    }

    /// Reads the next link that it prints.
    pub fn read_link(&mut self) {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("a line");
        self.link = line.split_whitespace().last().expect("a link").to_owned();
    }

    /// Its `HOST:PORT`.
    pub fn address(&self) -> &str {
        self.link.split('/').nth(2).expect("an address")
    }

    /// The first component of its paths, with slashes.
    pub fn prefix(&self) -> String {
        format!("/{}/", self.link.split('/').nth(3).expect("a prefix"))
    }

    /// Begins a session. Returns the header with its cookie.
    pub fn log_in(&mut self) -> String {
        let path = self.link.split_once(self.address()).expect("a path").1.to_owned();
        let (status, reply) = self.request("GET", &path, &[], "");
        assert_eq!(status, 200, "{reply}");
        let cookie = reply.lines().find_map(|line| line.strip_prefix("set-cookie: ")).expect("a cookie");
        assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"), "{cookie}");
        assert!(cookie.contains(&format!("Path={}", self.prefix())), "{cookie}");
        self.read_link();
        format!("Cookie: {}", cookie.split(';').next().expect("a value"))
    }

    /// Sends a request. `headers` may replace Host. Returns the status, and the whole reply.
    pub fn request(&self, method: &str, path: &str, headers: &[&str], body: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(self.address()).expect("connect");
        stream.set_read_timeout(Some(Duration::from_secs(30))).expect("timeout");
        let mut request =
            format!("{method} {path} HTTP/1.1\r\nConnection: close\r\nContent-Length: {}\r\n", body.len());
        if !headers.iter().any(|header| header.starts_with("Host: ")) {
            request += &format!("Host: {}\r\n", self.address());
        }
        headers.iter().for_each(|header| request += &format!("{header}\r\n"));
        request += &format!("\r\n{body}");
        stream.write_all(request.as_bytes()).expect("send");
        let mut reply = Vec::new();
        stream.read_to_end(&mut reply).expect("receive");
        let reply = String::from_utf8_lossy(&reply).into_owned();
        let status = reply.split(' ').nth(1).and_then(|status| status.parse().ok());
        (status.unwrap_or_else(|| panic!("no status: {reply}")), reply)
    }
}
