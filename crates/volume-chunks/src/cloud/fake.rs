//! Servers for tests, each on a port of this machine and with its objects in memory: what is used of the XML API of Google Cloud
//! Storage, of Azure Blob Storage, and of WebDAV.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write as _;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    Gcs,
    Azure,
    /// With the login `ada:secret`.
    WebDav,
}

/// The header `Authorization` that a WebDAV server requires.
const LOGIN: &str = "Basic YWRhOnNlY3JldA==";
const DATE: &str = "Thu, 01 Jan 2026 00:00:00 GMT";

struct Contents {
    protocol: Protocol,
    objects: BTreeMap<String, Vec<u8>>,
    directories: BTreeSet<String>,
    ended: AtomicBool,
}

pub(super) struct Server {
    pub address: SocketAddr,
    contents: Arc<Mutex<Contents>>,
    accepting: Option<JoinHandle<()>>,
}

impl Server {
    pub fn start(protocol: Protocol) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let directories = ["".to_owned(), "/my dir".to_owned()].into();
        let ended = AtomicBool::new(false);
        let contents =
            Arc::new(Mutex::new(Contents { protocol, objects: BTreeMap::new(), directories, ended }));
        let served = contents.clone();
        let accepting = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if served.lock().unwrap().ended.load(Ordering::Relaxed) {
                    return;
                }
                // One request, then the connection is closed.
                let _ = stream.and_then(|stream| serve(stream, &served));
            }
        });
        Self { address, contents, accepting: Some(accepting) }
    }

    pub fn keys(&self) -> Vec<String> {
        self.contents.lock().unwrap().objects.keys().cloned().collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.contents.lock().unwrap().ended.store(true, Ordering::Relaxed);
        drop(TcpStream::connect(self.address));
        let _ = self.accepting.take().map(JoinHandle::join);
    }
}

struct Request {
    method: String,
    path: String,
    query: String,
    headers: HashMap<String, String>,
    body: Vec<u8>,
}

/// Replaces the escapes that occur in the keys of these tests.
fn decoded(text: &str) -> String {
    text.replace("%20", " ").replace("%2F", "/").replace("%2E", ".")
}

struct Reply(u16, Vec<(&'static str, String)>, Vec<u8>);

fn status(number: u16) -> Reply {
    Reply(number, Vec::new(), Vec::new())
}

fn serve(stream: TcpStream, contents: &Mutex<Contents>) -> io::Result<()> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let mut words = line.split_whitespace().map(str::to_owned);
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let mut headers = HashMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.split_once(':') else { break };
        headers.insert(name.to_lowercase(), value.trim().to_owned());
    }
    let length = headers.get("content-length").map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let path = decoded(path.trim_end_matches('/'));
    let request = Request { method, path, query: decoded(query), headers, body };
    let Reply(status, headers, body) = contents.lock().unwrap().answer(&request);
    let mut text =
        format!("HTTP/1.1 {status} Status\r\nConnection: close\r\nContent-Length: {}\r\n", body.len());
    for (name, value) in headers {
        let _ = write!(text, "{name}: {value}\r\n");
    }
    let mut stream = reader.into_inner();
    stream.write_all(text.as_bytes())?;
    stream.write_all(b"\r\n")?;
    if request.method != "HEAD" {
        stream.write_all(&body)?;
    }
    Ok(())
}

impl Contents {
    fn answer(&mut self, request: &Request) -> Reply {
        let header = |name: &str| request.headers.get(name).map(String::as_str);
        let authorization = header("authorization").unwrap_or_default();
        if self.protocol == Protocol::WebDav && authorization != LOGIN {
            return status(401);
        }
        if self.protocol == Protocol::Azure && !authorization.starts_with("SharedKey account:") {
            return status(403);
        }
        let is_there = self.objects.contains_key(&request.path);
        match request.method.as_str() {
            "PUT" if header("x-goog-if-generation-match") == Some("0") && is_there => status(412),
            "PUT" if header("if-none-match") == Some("*") && is_there => status(409),
            "PUT" | "MKCOL" if self.protocol == Protocol::WebDav && !self.has_parent(&request.path) => {
                status(409)
            }
            "PUT" => {
                self.objects.insert(request.path.clone(), request.body.clone());
                Reply(201, about(), Vec::new())
            }
            "MKCOL" => match self.directories.insert(request.path.clone()) {
                true => status(201),
                false => status(405),
            },
            "GET" if request.query.contains("list") => {
                Reply(200, Vec::new(), self.list(request).into_bytes())
            }
            "GET" | "HEAD" => match self.objects.get(&request.path) {
                Some(bytes) => part(bytes, header("range")),
                None => status(404),
            },
            "DELETE" => status(self.delete(&request.path)),
            "POST" if request.query.ends_with("comp=batch") => self.delete_batch(&request.body),
            "PROPFIND" if header("depth") != Some("1") => status(403),
            "PROPFIND" if !self.directories.contains(&request.path) => status(404),
            "PROPFIND" => Reply(207, Vec::new(), self.propfind(&request.path).into_bytes()),
            _ => status(501),
        }
    }

    fn delete(&mut self, path: &str) -> u16 {
        if self.objects.remove(path).is_some() { 204 } else { 404 }
    }

    /// Azure's form of several deletions in one request.
    fn delete_batch(&mut self, body: &[u8]) -> Reply {
        let body = String::from_utf8_lossy(body);
        let deleted = body.lines().filter_map(|line| line.strip_prefix("DELETE ")?.split_once(' '));
        let mut text = String::new();
        for (n, (path, _)) in deleted.enumerate() {
            let status = self.delete(&decoded(path));
            let _ = write!(
                text,
                "--part\r\nContent-Type: application/http\r\nContent-ID: {n}\r\n\r\nHTTP/1.1 {status} Status\r\n\r\n\r\n"
            );
        }
        text += "--part--\r\n";
        Reply(202, vec![("Content-Type", "multipart/mixed; boundary=part".to_owned())], text.into_bytes())
    }

    fn has_parent(&self, path: &str) -> bool {
        path.rsplit_once('/').is_some_and(|(parent, _)| self.directories.contains(parent))
    }

    /// All objects of a bucket below a prefix, in one page.
    fn list(&self, request: &Request) -> String {
        let prefix =
            request.query.split('&').find_map(|word| word.strip_prefix("prefix=")).unwrap_or_default();
        let bucket = format!("{}/", request.path);
        let mut text = String::new();
        for (path, bytes) in &self.objects {
            let Some(key) = path.strip_prefix(&bucket).filter(|key| key.starts_with(prefix)) else {
                continue;
            };
            let length = bytes.len();
            let _ = match self.protocol {
                Protocol::Azure => write!(
                    text,
                    "<Blob><Name>{key}</Name><Properties><Last-Modified>{DATE}</Last-Modified><Content-Length>{length}\
                     </Content-Length><Content-Type>x/y</Content-Type><Etag>\"1\"</Etag></Properties></Blob>"
                ),
                _ => write!(
                    text,
                    "<Contents><Key>{key}</Key><Size>{length}</Size>\
                     <LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>\"1\"</ETag></Contents>"
                ),
            };
        }
        match self.protocol {
            Protocol::Azure => format!("<EnumerationResults><Blobs>{text}</Blobs></EnumerationResults>"),
            _ => format!("<ListBucketResult>{text}</ListBucketResult>"),
        }
    }

    fn propfind(&self, directory: &str) -> String {
        let below = format!("{directory}/");
        let is_child = |path: &&String| path.strip_prefix(&below).is_some_and(|name| !name.contains('/'));
        let mut text = "<D:multistatus xmlns:D=\"DAV:\">".to_owned();
        let mut entry = |path: &str, kind: &str, length: usize| {
            let path = path.replace(' ', "%20");
            let _ = write!(
                text,
                "<D:response><D:href>{path}</D:href><D:propstat><D:prop><D:resourcetype>{kind}</D:resourcetype>\
                 <D:getcontentlength>{length}</D:getcontentlength><D:getlastmodified>{DATE}</D:getlastmodified></D:prop>\
                 <D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response>"
            );
        };
        let own = std::iter::once(directory);
        for path in own.chain(self.directories.iter().filter(is_child).map(String::as_str)) {
            entry(&format!("{path}/"), "<D:collection/>", 0);
        }
        for path in self.objects.keys().filter(is_child) {
            entry(path, "", self.objects[path].len());
        }
        text + "</D:multistatus>"
    }
}

fn about() -> Vec<(&'static str, String)> {
    vec![("ETag", "\"1\"".to_owned()), ("Last-Modified", DATE.to_owned())]
}

/// The requested range of an object.
fn part(bytes: &[u8], range: Option<&str>) -> Reply {
    let mut headers = about();
    let Some(range) = range else { return Reply(200, headers, bytes.to_vec()) };
    let (first, last) = range.trim_start_matches("bytes=").split_once('-').unwrap();
    let first: usize = first.parse().unwrap();
    let end = last.parse().map_or(bytes.len(), |last: usize| bytes.len().min(last + 1));
    if first >= end {
        return status(416);
    }
    headers.push(("Content-Range", format!("bytes {first}-{}/{}", end - 1, bytes.len())));
    Reply(206, headers, bytes[first..end].to_vec())
}
