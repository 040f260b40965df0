//! Chromium without a display, driven by chromedriver.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use fantoccini::actions::{InputSource as _, KeyAction, KeyActions};
use fantoccini::elements::Element;
use fantoccini::key::Key;
use fantoccini::{Client, ClientBuilder, Locator};
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::{Value, json};
use shunt_test_support::cmd::{Ended, within};
use shunt_test_support::port;
use shunt_tests::mounts;
use tempfile::TempDir;

/// Directory for screenshots, if they are wanted.
const SCREENSHOTS: &str = "SHUNT_SCREENSHOTS";
/// How long an element may take to appear.
const WAIT: Duration = Duration::from_secs(30);
/// Limit of the elements that Tab passes before it reaches the wanted one.
const MAX_TABS: usize = 60;

/// The size of a phone's screen.
pub const PHONE: (u32, u32) = (390, 844);

/// A browser, ended on drop.
pub struct Browser {
    runtime: tokio::runtime::Runtime,
    client: Client,
    _driver: Ended,
    profile: TempDir,
}

impl Browser {
    /// A browser with a window of a desktop's size.
    pub fn start() -> Self {
        Self::with_options(&json!({}))
    }

    /// A browser that behaves like that of a phone.
    pub fn phone() -> Self {
        let (width, height) = PHONE;
        let screen = json!({ "width": width, "height": height, "pixelRatio": 1, "touch": true });
        Self::with_options(&json!({ "mobileEmulation": { "deviceMetrics": screen } }))
    }

    fn with_options(options: &Value) -> Self {
        let profile = tempfile::tempdir().unwrap();
        let port = port::reserve();
        let mut driver = Command::new("chromedriver");
        driver.arg(format!("--port={port}")).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let driver = Ended(driver.spawn().expect("chromedriver"));
        assert!(within(Duration::from_secs(20), || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()));
        let data = format!("--user-data-dir={}", profile.path().display());
        let mut options = options.clone();
        options["args"] = json!([
            "--headless=new",
            "--no-sandbox",
            "--disable-dev-shm-usage",
            "--disable-gpu",
            "--hide-scrollbars",
            "--window-size=1200,1040",
            data
        ]);
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
    #[track_caller]
    pub fn script(&self, script: &str) -> Value {
        self.runtime.block_on(self.client.execute(script, Vec::new())).expect(script)
    }

    /// Waits for an element.
    #[track_caller]
    pub fn find(&self, css: &str) -> Element {
        self.locate(Locator::Css(css))
    }

    #[track_caller]
    fn locate(&self, locator: Locator<'_>) -> Element {
        let found = self.client.wait().at_most(WAIT);
        match self.runtime.block_on(found.for_element(locator)) {
            Ok(element) => element,
            Err(error) => panic!("no {locator:?}: {error}; the page is: {}", self.text()),
        }
    }

    /// Waits for an element, and clicks it.
    #[track_caller]
    pub fn click(&self, css: &str) {
        self.click_at(Locator::Css(css));
    }

    /// Waits for the first button with this label, and clicks it.
    #[track_caller]
    pub fn click_button(&self, label: &str) {
        self.click_at(Locator::XPath(&format!("//button[normalize-space()='{label}']")));
    }

    /// Waits for a table's first row with this cell, and clicks the button with this label there.
    #[track_caller]
    pub fn click_button_of_row(&self, cell: &str, label: &str) {
        let row = format!("//tr[td[normalize-space()='{cell}']]");
        self.click_at(Locator::XPath(&format!("{row}//button[normalize-space()='{label}']")));
    }

    #[track_caller]
    fn click_at(&self, locator: Locator<'_>) {
        let element = self.locate(locator);
        let clicked = self.runtime.block_on(element.click());
        clicked.unwrap_or_else(|error| panic!("cannot click {locator:?}: {error}"));
    }

    /// Presses a key, as the keyboard does.
    pub fn press(&self, key: Key) {
        let value = char::from(key);
        let keys =
            KeyActions::new("keyboard".into()).then(KeyAction::Down { value }).then(KeyAction::Up { value });
        self.runtime.block_on(self.client.perform_actions(keys)).expect("a key");
    }

    /// Presses Tab until an element has the focus.
    #[track_caller]
    pub fn tab_to(&self, css: &str) {
        let is_focused = format!("return document.activeElement.matches({})", json!(css));
        for _ in 0..MAX_TABS {
            if self.script(&is_focused) == true {
                return;
            }
            self.press(Key::Tab);
        }
        panic!("Tab does not reach {css}");
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

    /// The directory for screenshots, if they are wanted.
    pub fn screenshots() -> Option<PathBuf> {
        std::env::var_os(SCREENSHOTS).map(PathBuf::from)
    }

    /// Writes a picture of the page, if that is wanted. It shows `directory`, which has a random name, as `/mnt`.
    pub fn screenshot(&self, name: &str, directory: &Path) {
        let Some(pictures) = Self::screenshots() else { return };
        fs::create_dir_all(&pictures).expect("mkdir");
        let prefix = format!("{}/mnt-", directory.display());
        self.script(&format!(
            "const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT); \
             while (texts.nextNode()) texts.currentNode.data = texts.currentNode.data.replaceAll({}, '/mnt/');",
            json!(prefix)
        ));
        let picture = self.runtime.block_on(self.client.screenshot()).expect("a screenshot");
        fs::write(pictures.join(format!("{name}.png")), picture).expect("write");
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
