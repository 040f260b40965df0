//! Sends files. Pictures are shown by the browser, everything else is downloaded.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use bytes::Bytes;
use hyper::body::Frame;
use percent_encoding::{NON_ALPHANUMERIC, percent_encode};
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use super::error::Result;
use super::files;
use super::query::Parameters;

/// Bytes read at once.
const READ_BYTES: usize = 256 << 10;
/// Reads ahead of the browser.
const MAX_READS_AHEAD: usize = 4;
/// Bytes by which a picture is recognised.
const MAGIC_BYTES: usize = 16;

/// A file as a response, complete but for its body.
pub struct Download {
    file: File,
    size: u64,
    media_type: &'static str,
    disposition: String,
}

impl Download {
    /// Opens the file of a request.
    pub fn open(parameters: &Parameters) -> Result<Self> {
        let (file, size) = files::open(parameters)?;
        let mut start = [0; MAGIC_BYTES];
        let len = file.read_at(&mut start, 0).map_err(files::unreadable)?;
        let path = parameters.path()?;
        let name = path.file_name().map(|name| name.as_bytes()).unwrap_or_default();
        let picture = files::picture_type(&start[..len])
            .filter(|_| matches!(parameters.optional("download"), Ok(None)));
        let how = if picture.is_some() { "inline" } else { "attachment" };
        Ok(Download {
            file,
            size,
            media_type: picture.unwrap_or("application/octet-stream"),
            disposition: format!("{how}; filename*=UTF-8''{}", percent_encode(name, NON_ALPHANUMERIC)),
        })
    }

    /// Sends the file from a thread of its own, which drops the permit at its end.
    pub fn into_response(self, permit: OwnedSemaphorePermit) -> Response {
        let (send, receive) = mpsc::channel(MAX_READS_AHEAD);
        let (file, size) = (self.file, self.size);
        tokio::task::spawn_blocking(move || {
            let _permit = permit;
            send_all(file.take(size), &send);
        });
        let mut response = Response::new(Body::new(Chunks(receive)));
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(self.media_type));
        headers.insert(header::CONTENT_LENGTH, size.into());
        // A document of its own, without scripts, even if a browser displays it.
        let policy = HeaderValue::from_static("default-src 'none'; sandbox; frame-ancestors 'none'");
        headers.insert(header::CONTENT_SECURITY_POLICY, policy);
        if let Ok(disposition) = HeaderValue::from_str(&self.disposition) {
            headers.insert(header::CONTENT_DISPOSITION, disposition);
        }
        response
    }
}

fn send_all(mut file: io::Take<File>, to: &mpsc::Sender<io::Result<Bytes>>) {
    loop {
        let mut chunk = vec![0; READ_BYTES];
        let chunk = match file.read(&mut chunk) {
            Ok(0) => return,
            Ok(len) => {
                chunk.truncate(len);
                Ok(chunk.into())
            }
            Err(error) => Err(error),
        };
        let failed = chunk.is_err();
        // The browser may have closed the connection.
        if to.blocking_send(chunk).is_err() || failed {
            return;
        }
    }
}

/// The body of a response, in chunks that another thread reads.
struct Chunks(mpsc::Receiver<io::Result<Bytes>>);

impl hyper::body::Body for Chunks {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        self.0.poll_recv(context).map(|chunk| chunk.map(|chunk| chunk.map(Frame::data)))
    }
}
