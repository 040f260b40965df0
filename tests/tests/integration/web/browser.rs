//! Chromium without a display, driven by chromedriver.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use fantoccini::elements::Element;
use fantoccini::{Client, ClientBuilder, Locator};
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::json;
use shunt_test_support::cmd::{Ended, within};
use shunt_test_support::port;
use shunt_tests::mounts;
use tempfile::TempDir;

/// Directory for screenshots, if they are wanted.
const SCREENSHOTS: &str = "SHUNT_SCREENSHOTS";
/// How long an element may take to appear.
const WAIT: Duration = Duration::from_secs(30);

/// A browser, ended on drop.
pub struct Browser {
    runtime: tokio::runtime::Runtime,
    client: Client,
    _driver: Ended,
    profile: TempDir,
}

impl Browser {
    pub fn start() -> Self {
        let profile = tempfile::tempdir().unwrap();
        let port = port::reserve();
        let mut driver = Command::new("chromedriver");
        driver.arg(format!("--port={port}")).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let driver = Ended(driver.spawn().expect("chromedriver"));
        assert!(within(Duration::from_secs(20), || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()));
        let data = format!("--user-data-dir={}", profile.path().display());
        let options = json!({ "args": ["--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu",
            "--window-size=1200,1400", data] });
        let capabilities = [("goog:chromeOptions".to_owned(), options)].into_iter().collect();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let mut builder = ClientBuilder::new(HttpConnector::new());
        builder.capabilities(capabilities);
        let client =
            runtime.block_on(builder.connect(&format!("http://127.0.0.1:{port}"))).expect("a browser");
        Browser { runtime, client, _driver: driver, profile }
    }

    pub fn open(&self, url: &str) {
        self.runtime.block_on(self.client.goto(url)).expect("the page");
    }

    /// Shows a view of the page: the part of its address behind `#`.
    pub fn show(&self, fragment: &str) {
        self.script(&format!("window.location.hash = {};", json!(fragment)));
    }

    /// Runs a script, and returns its value.
    pub fn script(&self, script: &str) -> serde_json::Value {
        self.runtime.block_on(self.client.execute(script, Vec::new())).expect(script)
    }

    /// Waits for an element.
    #[track_caller]
    pub fn find(&self, css: &str) -> Element {
        let found = self.client.wait().at_most(WAIT);
        match self.runtime.block_on(found.for_element(Locator::Css(css))) {
            Ok(element) => element,
            Err(error) => panic!("no {css}: {error}; the page is: {}", self.text()),
        }
    }

    /// Waits for an element, and clicks it.
    #[track_caller]
    pub fn click(&self, css: &str) {
        let element = self.find(css);
        self.runtime.block_on(element.click()).unwrap_or_else(|error| panic!("cannot click {css}: {error}"));
    }

    /// Presses a key in the focused element.
    pub fn press(&self, key: char) {
        let focused = self.runtime.block_on(self.client.active_element()).expect("a focused element");
        self.runtime.block_on(focused.send_keys(&key.to_string())).expect("a key");
    }

    /// Text of the page.
    pub fn text(&self) -> String {
        self.script("return document.body.innerText").as_str().unwrap_or_default().to_owned()
    }

    /// Waits until the page has a text.
    #[track_caller]
    pub fn expect(&self, text: &str) {
        assert!(within(WAIT, || self.text().contains(text)), "no `{text}` in: {}", self.text());
    }

    pub fn resize(&self, width: u32, height: u32) {
        self.runtime.block_on(self.client.set_window_size(width, height)).expect("a size");
    }

    /// Writes a picture of the page into `SHUNT_SCREENSHOTS`, if that is set.
    pub fn screenshot(&self, name: &str) {
        let Some(directory) = std::env::var_os(SCREENSHOTS).map(PathBuf::from) else { return };
        fs::create_dir_all(&directory).expect("mkdir");
        let picture = self.runtime.block_on(self.client.screenshot()).expect("a screenshot");
        fs::write(directory.join(format!("{name}.png")), picture).expect("write");
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.runtime.block_on(self.client.clone().close());
        let profile = self.profile.path();
        // Chromium ends by itself, but not if the driver failed.
        within(Duration::from_secs(5), || mounts::processes_naming(profile).is_empty());
        mounts::processes_naming(profile).into_iter().for_each(mounts::end);
    }
}
