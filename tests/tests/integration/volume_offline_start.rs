//! A node that starts while its store is unreachable.

use std::fs;
use std::io;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use shunt_test_support::certificates::Certificate;
use shunt_test_support::cmd::within;
use shunt_test_support::servers::{Postgres, S3};
use shunt_test_support::{needs_mount, pace, run, skip};
use shunt_tests::volume::Mount;
use shunt_tests::{Volume, binary};

const STATE_TIMEOUT: Duration = Duration::from_secs(60);

/// A proxy before a server. When shut, it accepts connections and sends nothing.
struct Gate {
    port: u16,
    is_open: Arc<AtomicBool>,
    silent: Arc<Mutex<Vec<TcpStream>>>,
}

impl Gate {
    fn before(server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let is_open = Arc::new(AtomicBool::new(true));
        let silent = Arc::new(Mutex::new(Vec::new()));
        let (gate, kept) = (is_open.clone(), silent.clone());
        // The thread ends with the test process.
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                match gate.load(Ordering::SeqCst) {
                    true => pass(client, server),
                    false => kept.lock().unwrap().push(client),
                }
            }
        });
        Self { port, is_open, silent }
    }

    fn set(&self, open: bool) {
        self.is_open.store(open, Ordering::SeqCst);
        self.silent.lock().unwrap().clear();
    }

    fn address(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }
}

fn pass(client: TcpStream, server: u16) {
    let Ok(server) = TcpStream::connect(("127.0.0.1", server)) else { return };
    for (mut from, mut to) in [(client.try_clone().unwrap(), server.try_clone().unwrap()), (server, client)] {
        thread::spawn(move || {
            io::copy(&mut from, &mut to).ok();
            to.shutdown(Shutdown::Both).ok();
        });
    }
}

#[track_caller]
fn settled(mount: &Mount) {
    let is_settled = || {
        let status = mount.status();
        status["state"] == "online" && status["pending"] == 0
    };
    assert!(within(STATE_TIMEOUT, is_settled), "{}", mount.status());
}

#[test]
fn cached_volume_is_mounted_offline() {
    needs_mount!();
    let Some(server) = Postgres::start(false) else {
        skip::skip("PostgreSQL is not installed (run tests/setup)");
        return;
    };
    let (volume, gate) = (Volume::new(), Gate::before(server.port()));
    let (near, through) = (server.tcp_address(), gate.address());
    let data = format!("file:{}", volume.aside().join("data").display());
    run(&mut binary::command(&["volume", "create", "shared", "--meta", &near, "--data", &data])).ok();
    let ant = volume.mount_shared("ant", &through);
    fs::write(ant.at().join("here"), "before").unwrap();
    settled(&ant);
    drop(ant);

    gate.set(false);
    let ant = volume.mount_shared("ant", &through);
    assert_eq!(fs::read_to_string(ant.at().join("here")).unwrap(), "before");
    fs::write(ant.at().join("here"), "after").unwrap();
    fs::create_dir(ant.at().join("made")).unwrap();
    assert!(within(STATE_TIMEOUT, || ant.status()["state"] == "unreachable"), "{}", ant.status());
    let begun = Instant::now();
    for _ in 0..10 {
        let past = fs::read(ant.at().join(".shunt-history/here@2020-01-01")).unwrap_err();
        assert_eq!(past.raw_os_error(), Some(rustix::io::Errno::NETUNREACH.raw_os_error()));
    }
    assert!(begun.elapsed() < pace::seconds(3), "{:?}", begun.elapsed());

    gate.set(true);
    settled(&ant);
    let bee = volume.mount_shared("bee", &near);
    let came = || fs::read_to_string(bee.at().join("here")).is_ok_and(|text| text == "after");
    assert!(within(STATE_TIMEOUT, came) && bee.at().join("made").is_dir());
}

#[test]
fn a_password_is_taken_from_a_file_and_one_in_an_address_is_warned_of() {
    let Some(server) = Postgres::start(false) else {
        skip::skip("PostgreSQL is not installed (run tests/setup)");
        return;
    };
    let home = shunt_tests::lower_fs::temp_dir();
    let data = format!("file:{}", home.path().join("data").display());
    let create = |name: &str, address: &str| {
        let mut create = binary::command(&["volume", "create", name, "--meta", address, "--data"]);
        run(create.arg(format!("{data}-{name}")).env("HOME", home.path()).env_remove("PGPASSFILE"))
    };
    server.ask_for_password("s3:cret");
    let address = server.tcp_address();
    assert!(within(STATE_TIMEOUT, || create("none", &address).err.contains("password missing")));

    let passfile = home.path().join(".pgpass");
    fs::write(&passfile, format!("127.0.0.1:{}:*:postgres:s3\\:cret\n", server.port())).unwrap();
    fs::set_permissions(&passfile, fs::Permissions::from_mode(0o644)).unwrap();
    let output = create("one", &address).fails();
    assert!(output.contains("others can read it: chmod 600"), "{output}");
    fs::set_permissions(&passfile, fs::Permissions::from_mode(0o600)).unwrap();
    create("one", &address).ok();

    let output = create("two", &address.replace("postgres@", "postgres:s3:cret@"));
    assert!(output.err.contains("~/.pgpass") && !output.err.contains("s3:cret"), "{}", output.err);
    output.ok();
}

#[test]
fn contents_go_by_tls_to_a_server_that_this_machine_trusts() {
    needs_mount!();
    let (ours, others) = (Certificate::new("127.0.0.1"), Certificate::new("127.0.0.1"));
    let Some(server) = S3::start_tls(&ours) else {
        skip::skip("versitygw is not installed (run tests/setup)");
        return;
    };
    let home = shunt_tests::lower_fs::temp_dir();
    let mount = home.path().join("mnt");
    fs::create_dir(&mount).unwrap();
    let shunt = |trusted: &Certificate, words: &[&str]| {
        let roots = home.path().join("roots");
        fs::write(&roots, &trusted.authority).unwrap();
        let mut command = binary::command(&[&["volume"], words].concat());
        for name in ["DATA", "CACHE", "CONFIG"] {
            command.env(format!("XDG_{name}_HOME"), home.path());
        }
        command.env("SSL_CERT_FILE", roots).env("AWS_REGION", "us-east-1");
        command.env("AWS_ENDPOINT_URL", server.endpoint());
        command.env("AWS_ACCESS_KEY_ID", S3::KEYS.0).env("AWS_SECRET_ACCESS_KEY", S3::KEYS.1);
        run(&mut command)
    };
    let create = ["create", "--data", "s3://bucket/tls", "tls"];
    let output = shunt(&others, &create).fails();
    assert!(output.contains("cannot be reached"), "{output}");
    shunt(&ours, &create).ok();
    let at = mount.to_str().unwrap();
    shunt(&ours, &["mount", "--daemon", "tls", at]).ok();
    fs::write(mount.join("file"), vec![7; 100_000]).unwrap();
    // The daemon is sandboxed by now.
    let is_sent = || {
        let status: serde_json::Value =
            serde_json::from_str(&shunt(&ours, &["status", "--json", at]).ok()).unwrap();
        status["pending"] == 0
    };
    let sent = within(STATE_TIMEOUT, is_sent);
    run(binary::command(&["umount"]).arg(at)).ok();
    assert!(sent, "it cannot be sent");
    assert!(server.bucket().join("tls/packs").is_dir());
}
