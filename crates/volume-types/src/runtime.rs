//! The tokio runtime on which every network request of this process runs.

/// The shared runtime, started by the first call. Its two threads only wait and decode: callers block on its handle.
pub fn runtime() -> &'static tokio::runtime::Handle {
    static RUNTIME: std::sync::OnceLock<tokio::runtime::Runtime> = std::sync::OnceLock::new();
    RUNTIME
        .get_or_init(|| {
            #[expect(clippy::expect_used, reason = "the process cannot work without these threads")]
            tokio::runtime::Builder::new_multi_thread()
                .worker_threads(2)
                .thread_name("volume-net")
                .enable_all()
                .build()
                .expect("cannot start the threads of the network runtime")
        })
        .handle()
}
