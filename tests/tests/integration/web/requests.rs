//! Requests that are no page's own are refused, and nothing is changed without permission.

use std::ffi::OsStr;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::time::{Duration, Instant};

use shunt_test_support::{needs_mount, run};
use shunt_tests::polling::{read, soon};
use shunt_tests::{Volume, binary};

use super::server::Server;

/// The server's limit of the downloads at a time.
const MAX_DOWNLOADS: usize = 16;

#[test]
fn other_pages_and_other_users_are_refused() {
    let data = tempfile::tempdir().unwrap();
    let mut server = Server::start(data.path(), &["--allow-changes"]);
    let used = server.link.split_once(server.address()).unwrap().1.to_owned();
    let cookie = server.log_in();
    let (own, list) =
        (format!("Origin: http://{}", server.address()), format!("{}api/mounts", server.prefix()));
    let status = |method: &str, headers: &[&str]| server.request(method, &list, headers, "").0;
    assert_eq!(status("GET", &[&cookie]), 200);
    assert_eq!(status("GET", &[&cookie, &own]), 200);
    assert_eq!(status("GET", &[]), 401);
    assert_eq!(status("GET", &["Cookie: shunt-session="]), 401);
    // A path that does not exist does not get past the check either.
    assert_eq!(server.request("GET", "/", &[], "").0, 401);
    assert_eq!(server.request("GET", "/", &[&cookie], "").0, 404);
    // A preview of the link does not use it up; the token was spent by the session.
    assert_eq!(server.request("HEAD", &used, &[], "").0, 405);
    assert_eq!(server.request("GET", &used, &[], "").0, 403);
    for host in ["evil.example", "127.0.0.1.evil.example", "192.0.2.1", "0.0.0.0"] {
        assert_eq!(status("GET", &[&cookie, &format!("Host: {host}")]), 403, "{host}");
    }
    for origin in ["http://evil.example", "http://127.0.0.1:1", "null", "https://localhost"] {
        let origin = format!("Origin: {origin}");
        assert_eq!((status("GET", &[&cookie, &origin]), status("POST", &[&cookie, &origin])), (403, 403));
    }
    assert_eq!(status("POST", &[&cookie]), 403, "without Origin");
    assert_eq!(status("GET", &[&cookie, "Sec-Fetch-Site: cross-site"]), 403);
    // With the page's own Origin only the parameters are wrong.
    assert_eq!(status("POST", &[&cookie, &own]), 400);
    assert_eq!(server.request("POST", &list, &[&cookie, &own], &"x".repeat(33 << 10)).0, 413);
    let (_, page) = server.request("GET", &server.prefix(), &[&cookie], "");
    assert!(page.contains("content-security-policy: default-src 'none'"), "{page}");
    assert!(page.contains("x-content-type-options: nosniff"), "{page}");
}

#[test]
fn clients_without_a_session_keep_no_connection() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &[]);
    let connect = || {
        let stream = TcpStream::connect(server.address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream
    };
    // One that sends slowly has 15 seconds.
    let (mut slow, begun) = (connect(), Instant::now());
    slow.write_all(b"GET / HTTP/1.1\r\n").unwrap();
    // One that sends many requests gets one response.
    let mut hasty = connect();
    let request = format!("GET / HTTP/1.1\r\nHost: {}\r\n\r\n", server.address());
    hasty.write_all(request.repeat(100).as_bytes()).unwrap();
    let mut reply = Vec::new();
    // The connection may be reset, as requests were not read.
    let _ = hasty.read_to_end(&mut reply);
    assert_eq!(String::from_utf8_lossy(&reply).matches("HTTP/1.1 401").count(), 1);
    assert!(begun.elapsed() < Duration::from_secs(10));
    let _ = slow.read_to_end(&mut reply);
    assert!(begun.elapsed() > Duration::from_secs(10), "{:?}", begun.elapsed());
}

#[test]
fn files_are_sent_so_that_no_browser_runs_them() {
    needs_mount!();
    let volume = Volume::new();
    let node = volume.mount_as("one");
    fs::write(node.at().join("page.html"), "<script>alert(1)</script>").unwrap();
    fs::write(node.at().join("picture"), b"\x89PNG\r\n\x1a\n<script>").unwrap();
    let odd = OsStr::from_bytes(b"odd\xff \"name\"\n");
    fs::write(node.at().join(odd), "odd").unwrap();
    fs::File::create(node.at().join("large")).unwrap().set_len(64 << 20).unwrap();
    let mut server = Server::start(volume.aside(), &[]);
    let cookie = server.log_in();
    let mount = format!("mount={}", node.at().display());
    let path = |path: &str| format!("{}file?{mount}&path={path}", server.prefix());
    let get = |name: &str| server.request("GET", &path(name), &[&cookie], "").1;

    let page = get("page.html");
    assert!(page.contains("content-type: application/octet-stream"), "{page}");
    assert!(page.contains("content-disposition: attachment; filename*=UTF-8''page%2Ehtml"), "{page}");
    let picture = get("picture");
    assert!(picture.contains("content-type: image/png"), "{picture}");
    assert!(picture.contains("content-disposition: inline"), "{picture}");
    assert!(get("picture&download=1").contains("content-disposition: attachment"));
    for reply in [&page, &picture] {
        assert!(reply.contains("content-security-policy: default-src 'none'; sandbox"), "{reply}");
        assert!(reply.contains("x-content-type-options: nosniff"), "{reply}");
    }
    let encoded = "odd%FF%20%22name%22%0A";
    let reply = get(encoded);
    assert!(reply.contains(&format!("filename*=UTF-8''{encoded}")) && reply.ends_with("odd"), "{reply}");
    let (_, list) = server.request("GET", &format!("{}api/files?{mount}", server.prefix()), &[&cookie], "");
    assert!(list.contains(encoded), "{list}");

    // Downloads whose clients do not read them are limited, and do not keep others from being answered.
    let request = format!("GET {} HTTP/1.1\r\nHost: {}\r\n{cookie}\r\n\r\n", path("large"), server.address());
    let downloads: Vec<TcpStream> = (0..MAX_DOWNLOADS)
        .map(|_| {
            let mut stream = TcpStream::connect(server.address()).unwrap();
            stream.write_all(request.as_bytes()).unwrap();
            let mut start = [0; 12];
            stream.read_exact(&mut start).unwrap();
            assert_eq!(&start, b"HTTP/1.1 200");
            stream
        })
        .collect();
    let (status, refusal) = server.request("GET", &path("large"), &[&cookie], "");
    assert!(status == 503 && refusal.contains("too many downloads"), "{refusal}");
    let mounts = format!("{}api/mounts", server.prefix());
    assert_eq!(server.request("GET", &mounts, &[&cookie], "").0, 200);
    drop(downloads);
    soon(|| server.request("GET", &path("page.html"), &[&cookie], "").0 == 200);
}

#[test]
fn addresses_that_other_machines_reach_are_refused() {
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:80"] {
        let said = run(&mut binary::command(&["web", "--listen", address])).fails();
        assert!(said.contains("other machines could connect") && said.contains("ssh -L"), "{said}");
    }
}

#[test]
fn nothing_is_changed_without_permission_or_outside_the_volume() {
    needs_mount!();
    let volume = Volume::new();
    let node = volume.mount_as("one");
    fs::write(node.at().join("file"), "first").unwrap();
    soon(|| node.status()["pending"] == 0);
    fs::write(volume.aside().join("secret"), "secret").unwrap();
    symlink(volume.aside().join("secret"), node.at().join("link")).unwrap();
    let mut server = Server::start(volume.aside(), &[]);
    let cookie = server.log_in();
    let own = format!("Origin: http://{}", server.address());
    let mount = format!("mount={}", node.at().display());
    for name in ["resolve", "pin", "unpin", "restore", "invite", "revoke", "offline"] {
        let path = format!("{}api/{name}", server.prefix());
        let (status, reply) = server.request("POST", &path, &[&cookie, &own], &format!("{mount}&path=file"));
        assert!(status == 403 && reply.contains("--allow-changes"), "{name}: {reply}");
    }
    assert_eq!(node.status()["pinned"].as_array().unwrap().len(), 0);
    assert_eq!(node.status()["state"], "online");
    let get = |query: &str| server.request("GET", &format!("{}{query}", server.prefix()), &[&cookie], "");
    let (_, shown) = get(&format!("api/text?{mount}&path=file"));
    assert!(shown.contains("\"text\":\"first\""), "{shown}");
    for path in ["link", "..%2Fsecret", "%2Fetc%2Fpasswd", "file%2F..%2F..%2Fsecret"] {
        for name in ["api/text", "file"] {
            let (status, reply) = get(&format!("{name}?{mount}&path={path}"));
            let body = reply.split_once("\r\n\r\n").unwrap().1;
            assert!(status >= 400 && !body.contains("\"secret\"") && body != "secret", "{path}: {reply}");
            assert!(reply.contains("content-type: text/plain"), "{reply}");
        }
    }
    // A directory that is no mount of a volume.
    let (status, _) = get(&format!("api/files?mount={}&path=", volume.aside().display()));
    assert_eq!(status, 404);
    assert_eq!(read(&node.at().join("file")), "first");
}
