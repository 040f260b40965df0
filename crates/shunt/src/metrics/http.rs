//! The HTTP side: `GET /metrics`, one request per connection, one thread per connection.
//!
//! Limits bound what a client can consume: the connections at a time, their duration, and the bytes of a request.

use std::convert::Infallible;
use std::future::ready;
use std::net::{TcpListener, TcpStream};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};

use super::io::BlockingIo;
use super::render::{Format, render};
use super::scrape::Source;
use crate::host_header::Host;

/// Time limit of a connection. A scrape takes some milliseconds, and at most the two seconds that silent daemons are waited for.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);
/// Limit of the connections at a time; further ones are closed.
const MAX_CONNECTIONS: usize = 16;
/// Limit of the bytes of a request. hyper requires 8 KiB at least.
const MAX_REQUEST_BYTES: usize = 16 << 10;
/// Limit of the header fields of a request.
const MAX_HEADERS: usize = 64;
/// Limit of the polls of a connection. It makes progress at each, since its transport blocks.
const MAX_POLLS: usize = 64;
/// Pause after a failed accept, usually for lack of descriptors.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);
/// Stack of the thread of a connection.
const STACK_BYTES: usize = 512 << 10;

const INDEX: &str = "shunt: the metrics are at /metrics\n";

/// Answers scrapes until the process ends.
pub fn serve(listener: &TcpListener, source: &Arc<dyn Source>) {
    let is_local = listener.local_addr().is_ok_and(|address| address.ip().is_loopback());
    let open = Arc::new(AtomicUsize::new(0));
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                if open.fetch_add(1, Ordering::Relaxed) >= MAX_CONNECTIONS {
                    open.fetch_sub(1, Ordering::Relaxed);
                    continue;
                }
                let (source, closed) = (source.clone(), OpenConnection(open.clone()));
                let work = move || {
                    let _closed = closed;
                    connection(stream, &source, is_local);
                };
                let thread = thread::Builder::new().name("metrics-scrape".into()).stack_size(STACK_BYTES);
                if let Err(error) = thread.spawn(work) {
                    tracing::debug!(%error, "cannot start a thread for a scrape");
                }
            }
            Err(error) => {
                tracing::debug!(%error, "cannot accept a scrape");
                thread::sleep(ACCEPT_BACKOFF);
            }
        }
    }
}

/// Counts a connection as closed when dropped.
struct OpenConnection(Arc<AtomicUsize>);

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn connection(stream: TcpStream, source: &Arc<dyn Source>, is_local: bool) {
    let answer = |request: Request<Incoming>| ready(Ok::<_, Infallible>(respond(&request, source, is_local)));
    let io = BlockingIo::new(stream, CONNECTION_TIMEOUT);
    let mut builder = http1::Builder::new();
    // With half_close hyper does not wait for the client's end before it replies.
    builder.keep_alive(false).half_close(true).max_buf_size(MAX_REQUEST_BYTES).max_headers(MAX_HEADERS);
    let mut connection = pin!(builder.serve_connection(io, service_fn(answer)));
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..MAX_POLLS {
        if let Poll::Ready(done) = connection.as_mut().poll(&mut context) {
            if let Err(error) = done {
                tracing::debug!(%error, "a scrape failed");
            }
            return;
        }
    }
}

fn respond(request: &Request<Incoming>, source: &Arc<dyn Source>, is_local: bool) -> Response<Full<Bytes>> {
    if is_local && !is_local_name(request.headers()) {
        return plain(StatusCode::FORBIDDEN, "shunt: the Host header must be an address or localhost\n");
    }
    if ![Method::GET, Method::HEAD].contains(request.method()) {
        let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, "shunt: only GET and HEAD are supported\n");
        response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    match request.uri().path() {
        "/metrics" => metrics(request.headers(), source),
        "/" => plain(StatusCode::OK, INDEX),
        _ => plain(StatusCode::NOT_FOUND, INDEX),
    }
}

fn metrics(headers: &HeaderMap, source: &Arc<dyn Source>) -> Response<Full<Bytes>> {
    let accept = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let format = Format::accepted_by(&accept.collect::<Vec<_>>().join(","));
    match render(&source.scrape(), format) {
        Ok(text) => with_type(StatusCode::OK, format.content_type(), text.into()),
        Err(error) => {
            tracing::warn!("cannot encode the metrics: {error}");
            plain(StatusCode::INTERNAL_SERVER_ERROR, "shunt: the metrics cannot be encoded\n")
        }
    }
}

/// Reports whether a request to a loopback address names an address or localhost, as opposed to a web page. HTTP/1.0 has no Host.
fn is_local_name(headers: &HeaderMap) -> bool {
    let host = |header: &HeaderValue| header.to_str().map_or(Host::Other, Host::parse);
    headers.get_all(header::HOST).iter().all(|header| host(header) != Host::Other)
}

fn plain(status: StatusCode, text: &'static str) -> Response<Full<Bytes>> {
    with_type(status, "text/plain; charset=utf-8", Bytes::from_static(text.as_bytes()))
}

fn with_type(status: StatusCode, content_type: &'static str, body: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::time::Instant;

    use super::super::scrape::Scrape;
    use super::*;

    fn start() -> std::net::SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || serve(&listener, &(Arc::new(Scrape::default) as Arc<dyn Source>)));
        address
    }

    /// The response to these bytes; empty if the connection is closed without one.
    fn response(address: std::net::SocketAddr, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let _ = stream.write_all(request);
        let mut text = Vec::new();
        let _ = stream.read_to_end(&mut text);
        String::from_utf8_lossy(&text).into_owned()
    }

    #[test]
    fn requests_are_answered_or_refused() {
        let address = start();
        let get = response(address, b"GET /metrics HTTP/1.1\r\nHost: localhost:1\r\n\r\n");
        assert!(get.starts_with("HTTP/1.1 200") && get.contains("shunt_exporter_info{"), "{get}");
        assert!(get.contains("text/plain; version=0.0.4") && get.contains("connection: close"), "{get}");
        let open = "GET /metrics HTTP/1.1\r\nHost: [::1]:1\r\nAccept: application/openmetrics-text\r\n\r\n";
        let open = response(address, open.as_bytes());
        assert!(open.contains("application/openmetrics-text") && open.ends_with("# EOF\n"), "{open}");
        let head = response(address, b"HEAD /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
        assert!(head.starts_with("HTTP/1.1 200") && !head.contains("shunt_exporter_info"), "{head}");
        for (request, status) in [
            ("POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc", "405"),
            ("GET /other HTTP/1.1\r\nHost: localhost\r\n\r\n", "404"),
            ("GET /metrics HTTP/1.1\r\nHost: evil.example:9555\r\n\r\n", "403"),
            ("GET /metrics HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n", "403"),
            ("nonsense\r\n\r\n", "400"),
            ("GET / HTTP/1.0\r\n\r\n", "200"),
        ] {
            let answer = response(address, request.as_bytes());
            assert!(answer.split(' ').nth(1) == Some(status), "{request:?}: {answer}");
        }
        let long = format!("GET / HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n", "x".repeat(64 << 10));
        assert!(!response(address, long.as_bytes()).contains("200"));
        let many = format!("GET / HTTP/1.1\r\nHost: localhost\r\n{}\r\n", "a: b\r\n".repeat(200));
        assert!(!response(address, many.as_bytes()).contains("200"));
    }

    #[test]
    fn silent_clients_do_not_block_others_and_are_limited() {
        let address = start();
        let silent: Vec<_> = (0..MAX_CONNECTIONS - 1).map(|_| TcpStream::connect(address).unwrap()).collect();
        // All are accepted, one after the other, before the next request.
        let begun = Instant::now();
        assert!(response(address, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").starts_with("HTTP/1.1 200"));
        assert!(begun.elapsed() < Duration::from_secs(5));
        let _last = TcpStream::connect(address).unwrap();
        assert_eq!(response(address, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"), "");
        drop(silent);
        let end = Instant::now() + Duration::from_secs(10);
        while response(address, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").is_empty() {
            assert!(Instant::now() < end);
        }
    }
}
