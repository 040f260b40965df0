//! The paths of the server, all below the prefix of [`App`].

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{DefaultBodyLimit, Path, RawQuery, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use serde_json::Value;

use super::app::App;
use super::download::Download;
use super::error::{Failure, Result};
use super::guard::{COOKIE, guard};
use super::query::Parameters;
use super::{assets, changes, diff, files, mounts, nodes, volumes};

/// Limit of the body of a change: a path of 4 KiB fits, however it is encoded.
const MAX_BODY_BYTES: usize = 32 << 10;

/// Leads to the page once the session's cookie is set. A redirect would be part of the navigation from another page, for which
/// a browser does not send the cookie.
const ENTER: &str = "<!doctype html><meta charset=utf-8><meta http-equiv=refresh content=\"0; url=./\"><title>Shunt</title>\
    <a href=\"./\">Continue</a>";

/// All paths, behind the guard.
pub fn router(app: &Arc<App>) -> Router {
    let at = |path: &str| format!("/{}/{path}", app.prefix);
    Router::new()
        .route(&at(""), get(index))
        .route(&at("login"), get(login))
        .route(&at("file"), get(download))
        .route(&at("{asset}"), get(asset))
        .route(&at("api/{name}"), get(read).post(change))
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .layer(from_fn_with_state(app.clone(), guard))
        .with_state(app.clone())
}

async fn index() -> Response {
    assets::response("index.html")
}

async fn asset(Path(name): Path<String>) -> Response {
    assets::response(&name)
}

/// Begins a session with the token of the link.
async fn login(State(app): State<Arc<App>>, query: RawQuery) -> Result<Response> {
    let parameters = parse(query);
    let Some(session) = app.sessions.begin(parameters.text("token")?) else {
        return Err(Failure::new(
            StatusCode::FORBIDDEN,
            "the link was used already, or belongs to a server that ended; open the last link that `shunt web` printed",
        ));
    };
    (app.print_link)(&app.link());
    let cookie = format!("{COOKIE}={session}; Path=/{}/; HttpOnly; SameSite=Strict", app.prefix);
    let mut response = Response::new(Body::from(ENTER));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    headers.insert(header::SET_COOKIE, HeaderValue::from_str(&cookie).map_err(Failure::bad)?);
    Ok(response)
}

async fn download(State(app): State<Arc<App>>, query: RawQuery) -> Result<Response> {
    let parameters = parse(query);
    let permit = app.download_permit()?;
    Ok(app.block(move |_| Download::open(&parameters)).await?.into_response(permit))
}

async fn read(State(app): State<Arc<App>>, Path(name): Path<String>, query: RawQuery) -> Result<Response> {
    let parameters = parse(query);
    json(app.block(move |app| value(app, &name, &parameters)).await)
}

fn value(app: &App, name: &str, parameters: &Parameters) -> Result<Value> {
    match name {
        "mounts" => Ok(mounts::list(app)),
        "conflicts" => volumes::conflicts(parameters),
        "history" => volumes::history(parameters),
        "nodes" => nodes::list(app, parameters),
        "files" => files::list(parameters),
        "text" => files::text(parameters),
        "diff" => diff::compare(parameters),
        _ => Err(Failure::new(StatusCode::NOT_FOUND, format_args!("there is no {name}"))),
    }
}

async fn change(State(app): State<Arc<App>>, Path(name): Path<String>, body: String) -> Result<Response> {
    let parameters = Parameters::parse(&body);
    json(app.block(move |app| changes::change(app, &name, &parameters)).await)
}

fn json(value: Result<Value>) -> Result<Response> {
    value.map(|value| axum::Json(value).into_response())
}

fn parse(RawQuery(query): RawQuery) -> Parameters {
    Parameters::parse(&query.unwrap_or_default())
}
