//! The control protocol, one line of JSON each way: `{"v":1,"ask":"stat"}` or `{"v":1,"ask":{"upgrade":{"binary":"/path"}}}`, and
//! `{"v":1,"ok":{...}}` or `{"v":1,"error":{...}}`.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::volume::VolumeAsk;
use crate::report::Entry;

/// The version of the protocol. A daemon may be older or newer than the command that queries it.
pub const VERSION: u32 = 1;
/// Limit of a request, in bytes: the longest path fits, with all JSON escapes.
pub const MAX_REQUEST_BYTES: u64 = 32 << 10;
/// Limit of a reply, in bytes.
pub const MAX_REPLY_BYTES: u64 = 4 << 20;

/// A request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Request {
    /// Identify the mount. The reply is [`Hello`].
    Hello,
    /// Report the statistics. The reply is [`Stat`](crate::report::Stat).
    Stat,
    /// Connect to the volume's store, or disconnect from it.
    Online(bool),
    /// A request about a volume, with a reply of its own type.
    Volume(VolumeAsk),
    /// Hand the mount over to another program. The reply is sent once that program is known to be fit; then the daemon ends.
    Upgrade {
        /// An absolute path.
        binary: PathBuf,
    },
}

/// The mount that a daemon serves.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Hello {
    /// Its entry in the list of mounts.
    #[serde(flatten)]
    pub entry: Entry,
    /// The reason why passthrough is off.
    pub passthrough_reason: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
struct RequestFrame<A> {
    v: u32,
    ask: A,
}

/// An error reply.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// One word: `malformed`, `version`, `refused`, `failed`.
    pub code: String,
    /// One line.
    pub message: String,
}

/// A reply.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reply {
    /// The result.
    Ok(Value),
    /// The error.
    Error(Refusal),
}

#[derive(Debug, Serialize, Deserialize)]
struct Versioned {
    v: u32,
    #[serde(flatten)]
    reply: Reply,
}

impl Reply {
    /// An error reply with this code.
    pub fn error(code: &str, message: impl ToString) -> Self {
        Reply::Error(Refusal { code: code.to_owned(), message: message.to_string() })
    }
}

/// Reads a request. The outer error is the connection's, the inner one is the reply to an invalid request.
pub fn read_request(stream: impl Read) -> io::Result<Result<Request, Reply>> {
    let Some(line) = read_line(stream, MAX_REQUEST_BYTES)? else {
        return Ok(Err(Reply::error("malformed", format_args!("no line within {MAX_REQUEST_BYTES} bytes"))));
    };
    // The version is parsed first: another version may have other requests.
    #[derive(Deserialize)]
    struct Version {
        v: u32,
    }
    Ok(match serde_json::from_slice(&line) {
        Ok(Version { v: VERSION }) => serde_json::from_slice::<RequestFrame<Request>>(&line)
            .map(|request| request.ask)
            .map_err(|error| Reply::error("malformed", error)),
        Ok(Version { v }) => Err(Reply::error(
            "version",
            format_args!("the daemon speaks version {VERSION} of the control protocol, not {v}"),
        )),
        Err(error) => Err(Reply::error("malformed", error)),
    })
}

/// Writes a request.
pub fn write_request(stream: impl Write, ask: &Request) -> io::Result<()> {
    write_line(stream, &RequestFrame { v: VERSION, ask })
}

/// Reads a reply.
pub fn read_reply(stream: impl Read) -> io::Result<Reply> {
    let no_end = || io::Error::new(io::ErrorKind::UnexpectedEof, "the reply is incomplete or too long");
    let line = read_line(stream, MAX_REPLY_BYTES)?.ok_or_else(no_end)?;
    let Versioned { v, reply } = serde_json::from_slice(&line)?;
    // A daemon of another version reports that in this form too.
    match reply {
        Reply::Ok(_) if v != VERSION => {
            Err(invalid("the daemon speaks another version of the control protocol"))
        }
        reply => Ok(reply),
    }
}

/// Writes a reply.
pub fn write_reply(stream: impl Write, reply: Reply) -> io::Result<()> {
    write_line(stream, &Versioned { v: VERSION, reply })
}

fn write_line(mut stream: impl Write, message: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    stream.write_all(&line)
}

/// Reads one line without its end; none if there is no end within `limit` bytes.
fn read_line(stream: impl Read, limit: u64) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    BufReader::new(stream.take(limit)).read_until(b'\n', &mut line)?;
    Ok((line.pop() == Some(b'\n')).then_some(line))
}

fn invalid(message: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(request: &[u8]) -> String {
        match read_request(request).unwrap() {
            Err(Reply::Error(refusal)) => refusal.code,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn there_and_back() {
        for ask in [Request::Hello, Request::Stat, Request::Upgrade { binary: "/a \"b".into() }] {
            let mut wire = Vec::new();
            write_request(&mut wire, &ask).unwrap();
            assert_eq!(read_request(&wire[..]).unwrap(), Ok(ask));
        }
        for reply in [Reply::Ok(serde_json::json!({"a": [1, null]})), Reply::error("failed", "no\nluck")] {
            let mut wire = Vec::new();
            write_reply(&mut wire, reply.clone()).unwrap();
            assert_eq!(read_reply(&wire[..]).unwrap(), reply);
        }
    }

    #[test]
    fn malformed_requests_get_an_answer() {
        for request in [
            &b""[..],
            b"\n",
            b"{\"v\":1,\"ask\":\"stat\"}",
            b"{}\n",
            b"null\n",
            b"{\"v\":1}\n",
            b"{\"v\":1,\"ask\":\"dance\"}\n",
            b"{\"v\":-1,\"ask\":\"stat\"}\n",
            b"{\"v\":1,\"ask\":[[[[[[\n",
            b"\xff\xfe\x00\n",
            &[b'['; 40_000],
            &[b"{\"v\":1,\"ask\":\"".as_slice(), &[b'x'; 80_000], b"\"}\n"].concat(),
        ] {
            assert_eq!(code(request), "malformed", "{:?}", String::from_utf8_lossy(request));
        }
        assert_eq!(code(b"{\"v\":2,\"ask\":\"new\"}\n"), "version");
    }

    #[test]
    fn every_cut_and_every_flipped_byte_is_survived() {
        let mut wire = Vec::new();
        write_request(&mut wire, &Request::Upgrade { binary: "/b".into() }).unwrap();
        let mut answer = Vec::new();
        write_reply(&mut answer, Reply::error("failed", "x")).unwrap();
        for text in [wire, answer] {
            for at in 0..text.len() {
                let _ = read_request(&text[..at]);
                let _ = read_reply(&text[..at]);
                for bit in 0..8 {
                    let mut bent = text.clone();
                    bent[at] ^= 1 << bit;
                    let _ = read_request(&bent[..]);
                    let _ = read_reply(&bent[..]);
                }
            }
        }
    }

    #[test]
    fn a_reply_of_another_version_is_an_error() {
        assert!(read_reply(&b"{\"v\":2,\"ok\":{}}\n"[..]).is_err());
        assert!(read_reply(&b"{\"v\":2,\"error\":{\"code\":\"version\",\"message\":\"m\"}}\n"[..]).is_ok());
    }
}
