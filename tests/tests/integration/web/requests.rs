//! Requests that are no page's own are refused, and nothing is changed without permission.

use std::fs;
use std::os::unix::fs::symlink;

use shunt_test_support::{needs_mount, run};
use shunt_tests::polling::{read, soon};
use shunt_tests::{Volume, binary};

use super::server::Server;

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
    // The token was spent.
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
    let (_, page) = server.request("GET", &server.prefix(), &[&cookie], "");
    assert!(page.contains("content-security-policy: default-src 'none'"), "{page}");
    assert!(page.contains("x-content-type-options: nosniff"), "{page}");
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
            assert!(status >= 400 && !reply.contains(":\"secret\""), "{path}: {reply}");
        }
    }
    // A directory that is no mount of a volume.
    let (status, _) = get(&format!("api/files?mount={}&path=", volume.aside().display()));
    assert_eq!(status, 404);
    assert_eq!(read(&node.at().join("file")), "first");
}
