//! Refuses requests that do not come from the page itself, in a browser that opened the printed link.
//!
//! Host must name this machine, against web pages whose name resolves to a loopback address (DNS rebinding). Origin and
//! Sec-Fetch-Site must be the page's own, against requests that other pages send. A change must have an Origin. All responses get
//! a policy by which a browser runs and loads nothing but the embedded files.
//!
//! A refusal ends its connection. So a client without a session cannot keep one by sending requests whose responses it does not
//! read.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::app::App;
use super::error::{Failure, Result};
use crate::host_header::Host;

/// Name of the session's cookie.
pub const COOKIE: &str = "shunt-session";

const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
    connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
    require-trusted-types-for 'script'; trusted-types 'none'";

/// Checks a request, has it handled, and sets the security headers of the response.
pub async fn guard(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let mut response = match check(&app, &request) {
        Ok(()) => next.run(request).await,
        Err(failure) => {
            let mut response = failure.into_response();
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            response
        }
    };
    let headers = response.headers_mut();
    for (name, value) in [
        ("x-content-type-options", "nosniff"),
        ("x-frame-options", "DENY"),
        ("referrer-policy", "no-referrer"),
        ("cross-origin-resource-policy", "same-origin"),
        ("cross-origin-opener-policy", "same-origin"),
        ("cache-control", "no-store"),
    ] {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    headers
        .entry(header::CONTENT_SECURITY_POLICY)
        .or_insert(HeaderValue::from_static(CONTENT_SECURITY_POLICY));
    response
}

fn check(app: &App, request: &Request) -> Result<()> {
    let headers = request.headers();
    let forbidden = |message: &str| Err(Failure::new(StatusCode::FORBIDDEN, message));
    // Of two Host headers, another part of the program could use the other one. A request to a proxy has its host in the path.
    let mut hosts = headers.get_all(header::HOST).iter().map(|host| host.to_str().unwrap_or_default());
    let host = match (hosts.next(), hosts.next()) {
        (Some(host), None) if Host::parse(host).is_loopback() && request.uri().authority().is_none() => host,
        _ => return forbidden("the Host header must be localhost or a loopback address"),
    };
    // Not HEAD either: a program that previews links must not use up the token.
    let is_change = match *request.method() {
        Method::GET => false,
        Method::POST => true,
        _ => {
            return Err(Failure::new(StatusCode::METHOD_NOT_ALLOWED, "only GET and POST are supported"));
        }
    };
    match headers.get(header::ORIGIN) {
        Some(origin) if origin.as_bytes() != format!("http://{host}").as_bytes() => {
            return forbidden("requests of other pages are refused");
        }
        None if is_change => return forbidden("changes need the Origin header of the page"),
        _ => {}
    }
    let path = request.uri().path().strip_prefix('/').and_then(|path| path.strip_prefix(&app.prefix[..]));
    // A browser that follows the printed link has no session yet, and may come from another page.
    if path == Some("/login") && !is_change {
        return Ok(());
    }
    let site = headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
    let is_navigation = headers.get("sec-fetch-mode").is_some_and(|mode| mode == "navigate");
    if !matches!(site, None | Some(b"same-origin" | b"none")) && (is_change || !is_navigation) {
        return forbidden("requests of other pages are refused");
    }
    if !session(headers).is_some_and(|session| app.sessions.has(session)) {
        return Err(Failure::new(
            StatusCode::UNAUTHORIZED,
            "this browser has no session; open the last link that `shunt web` printed",
        ));
    }
    if is_change && !app.settings.allow_changes {
        return forbidden("changes are off; start `shunt web --allow-changes`");
    }
    Ok(())
}

fn session(headers: &HeaderMap) -> Option<&str> {
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs =
        cookies.flat_map(|cookies| cookies.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find_map(|(name, value)| (name == COOKIE).then_some(value))
}

#[cfg(test)]
mod tests {
    use super::super::app::Settings;
    use super::*;

    fn app(allow_changes: bool) -> App {
        App::new("127.0.0.1:1".into(), Settings { allow_changes, ..Settings::default() }, |_| ())
    }

    fn status(method: &str, path: &str, headers: &[(&str, &str)], app: &App) -> Option<u16> {
        let mut request = Request::builder().method(method).uri(format!("/{}{path}", app.prefix));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        check(app, &request.body(axum::body::Body::empty()).unwrap())
            .err()
            .map(|failure| failure.status.as_u16())
    }

    #[test]
    fn only_the_page_itself_gets_through() {
        let app = app(true);
        let cookie = format!("a=b; {COOKIE}={}", app.sessions.begin(&app.sessions.token()).unwrap());
        let own = [("host", "127.0.0.1:1"), ("cookie", &cookie[..])];
        let with = |more: &[(&'static str, &'static str)]| -> Vec<(&str, &str)> {
            own.iter().copied().chain(more.iter().copied()).collect()
        };
        assert_eq!(status("GET", "/", &own, &app), None);
        assert_eq!(status("GET", "/login", &own[..1], &app), None);
        assert_eq!(status("POST", "/login", &own[..1], &app), Some(403));
        assert_eq!(status("HEAD", "/login", &own[..1], &app), Some(405));
        assert_eq!(status("DELETE", "/", &own, &app), Some(405));
        assert_eq!(status("GET", "/", &with(&[("host", "evil.example")]), &app), Some(403));
        assert_eq!(status("GET", "x/login", &own[..1], &app), Some(401));
        assert_eq!(status("GET", "/", &own[..1], &app), Some(401));
        assert_eq!(status("GET", "/", &own[1..], &app), Some(403));
        assert_eq!(status("GET", "/", &[("host", "evil.example:1"), own[1]], &app), Some(403));
        assert_eq!(status("GET", "/", &[("host", "192.0.2.1"), own[1]], &app), Some(403));
        assert_eq!(status("POST", "/", &own, &app), Some(403));
        assert_eq!(status("POST", "/", &with(&[("origin", "http://127.0.0.1:1")]), &app), None);
        for origin in ["http://127.0.0.1:2", "https://127.0.0.1:1", "null", "http://evil.example"] {
            assert_eq!(status("POST", "/", &with(&[("origin", origin)]), &app), Some(403), "{origin}");
            assert_eq!(status("GET", "/", &with(&[("origin", origin)]), &app), Some(403), "{origin}");
        }
        assert_eq!(status("GET", "/", &with(&[("sec-fetch-site", "same-site")]), &app), Some(403));
        assert_eq!(status("GET", "/", &with(&[("sec-fetch-site", "same-origin")]), &app), None);
    }

    #[test]
    fn changes_need_permission() {
        let app = app(false);
        let cookie = format!("{COOKIE}={}", app.sessions.begin(&app.sessions.token()).unwrap());
        let headers = [("host", "localhost:1"), ("cookie", &cookie[..]), ("origin", "http://localhost:1")];
        assert_eq!(status("POST", "/api/pin", &headers, &app), Some(403));
        assert_eq!(status("GET", "/api/mounts", &headers, &app), None);
    }
}
