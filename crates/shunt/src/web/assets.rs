//! The files of the page, embedded in the program.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};

use super::error::Failure;

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// Name, media type and contents.
const ASSETS: &[(&str, &str, &str)] = &[
    ("index.html", HTML, include_str!("assets/index.html")),
    ("style.css", CSS, include_str!("assets/style.css")),
    ("main.js", SCRIPT, include_str!("assets/main.js")),
    ("api.js", SCRIPT, include_str!("assets/api.js")),
    ("dom.js", SCRIPT, include_str!("assets/dom.js")),
    ("plot.js", SCRIPT, include_str!("assets/plot.js")),
    ("mounts.js", SCRIPT, include_str!("assets/mounts.js")),
    ("volume.js", SCRIPT, include_str!("assets/volume.js")),
    ("conflicts.js", SCRIPT, include_str!("assets/conflicts.js")),
    ("files.js", SCRIPT, include_str!("assets/files.js")),
    ("versions.js", SCRIPT, include_str!("assets/versions.js")),
    ("nodes.js", SCRIPT, include_str!("assets/nodes.js")),
];

/// The file with this name as a response.
pub fn response(name: &str) -> Response {
    let Some((_, media_type, contents)) = ASSETS.iter().find(|(known, ..)| *known == name) else {
        return Failure::new(StatusCode::NOT_FOUND, format_args!("there is no {name}")).into_response();
    };
    let mut response = Response::new(Body::from(*contents));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The policy of the page forbids what these patterns find, and browsers would report it only at run time.
    #[test]
    fn assets_have_no_inline_code_and_load_nothing_from_elsewhere() {
        for (name, _, contents) in ASSETS {
            for forbidden in [
                "style=\"",
                "onclick=",
                "http://",
                "https://",
                "innerHTML",
                "eval(",
                "<style",
                ".setAttribute('style'",
            ] {
                assert!(!contents.contains(forbidden), "{name}: {forbidden}");
            }
        }
    }
}
