//! Tests of INIT: versions, capabilities, refusals with reasons.

use std::time::Duration;

use shunt_fuse::{Config, NegotiationError, PROTOCOL, Profile};
use shunt_fuse_abi::{InitFlags, InitIn, Operation, RequestBuilder};
use shunt_fuse_mock::memfs::MemFs;
use shunt_fuse_mock::{MockKernel, Offer, Served};

fn serve(offer: &Offer, config: Config) -> Result<Served<MemFs>, NegotiationError> {
    Served::offered(offer, MemFs::new(), config)
}

/// Checks that the session answers a request.
fn works(kernel: Served<MemFs>) {
    kernel.getattr(1).unwrap();
    kernel.finish();
}

#[test]
fn every_minor_version_with_and_without_capabilities() {
    let newest = PROTOCOL.1;
    for minor in 27..=newest + 1 {
        for flags in [Offer::everything(), InitFlags::empty()] {
            for profile in [Profile::Passthrough, Profile::Writeback] {
                let served = serve(&Offer::minor(minor).with(flags), Config::new(profile));
                if minor < 28 {
                    assert!(matches!(served, Err(NegotiationError::TooOld { major: 7, minor: 27 })));
                    continue;
                }
                let kernel = served.unwrap();
                let negotiated = kernel.session().negotiated();
                assert_eq!(negotiated.minor, minor.min(newest));
                assert_eq!((kernel.init_out().major, kernel.init_out().minor), PROTOCOL);
                assert!(flags.contains(negotiated.granted));
                for refusal in &negotiated.refused {
                    assert!(!negotiated.has(refusal.capability) && !refusal.reason.is_empty());
                }
                works(kernel);
            }
        }
    }
}

#[test]
fn each_capability_offered_alone_is_all_that_is_taken() {
    for flag in Offer::everything() {
        let config = Config::new(Profile::Writeback).request(InitFlags::all());
        let kernel = serve(&Offer::default().with(flag), config).unwrap();
        let granted = kernel.session().negotiated().granted;
        assert!((flag | InitFlags::INIT_EXT).contains(granted), "{granted:?} of {flag:?}");
        works(kernel);
    }
}

#[test]
fn writeback_is_taken_and_passthrough_is_refused_with_the_reason() {
    let kernel = serve(&Offer::default(), Config::new(Profile::Writeback)).unwrap();
    assert!(kernel.negotiated().contains(InitFlags::WRITEBACK_CACHE));
    works(kernel);

    let kernel = serve(&Offer::default(), Config::new(Profile::Passthrough)).unwrap();
    assert!(!kernel.negotiated().intersects(InitFlags::WRITEBACK_CACHE | InitFlags::PASSTHROUGH));
    let refusal = kernel.session().negotiated().refusal(InitFlags::PASSTHROUGH).unwrap();
    assert!(refusal.reason.contains("/dev/fuse"), "{refusal}");
    assert!(kernel.session().passthrough().is_none());
    works(kernel);
}

#[test]
fn a_newer_major_version_asks_again() {
    works(serve(&Offer { major: 8, ..Offer::default() }, Config::new(Profile::Passthrough)).unwrap());
}

#[test]
fn an_older_major_version_is_refused() {
    let served = serve(&Offer { major: 6, ..Offer::default() }, Config::new(Profile::Passthrough));
    assert!(matches!(served, Err(NegotiationError::TooOld { major: 6, .. })));
}

#[test]
fn missing_required_capability_ends_the_negotiation() {
    let config = Config::new(Profile::Passthrough).require(InitFlags::POSIX_ACL);
    let error = serve(&Offer::default().with(InitFlags::empty()), config).unwrap_err();
    assert!(
        matches!(&error, NegotiationError::Required(r) if r.capability == InitFlags::POSIX_ACL),
        "{error}"
    );
}

#[test]
fn unknown_bits_are_not_accepted() {
    let all = InitFlags::from_bits_retain(u64::MAX);
    let kernel = serve(&Offer::default().with(all), Config::new(Profile::Writeback).request(all)).unwrap();
    assert!(!kernel.init_out().init_flags().contains(InitFlags::INIT_RESERVED));
    works(kernel);
}

#[test]
fn a_first_message_that_is_not_init_ends_it() {
    let init =
        RequestBuilder::new(2, 0).build(&Operation::Init { arg: InitIn { major: 7, ..Default::default() } });
    let cut = &init[..44];
    let getattr = RequestBuilder::new(2, 1).build(&Operation::Statfs);
    for message in [&b"garbage"[..], &[0; 40], &[0xff; 104], cut, &getattr] {
        let (result_sender, result_receiver) = std::sync::mpsc::channel();
        let kernel = MockKernel::start(move |fd| {
            let device = shunt_fuse::Device::new(fd).unwrap();
            let config = Config::new(Profile::Passthrough);
            let session = shunt_fuse::Session::<MemFs>::negotiate(MemFs::new(), config, device);
            result_sender.send(session.err().map(|error| error.to_string())).unwrap();
        });
        kernel.send_raw(message);
        let error = result_receiver.recv_timeout(Duration::from_secs(10)).expect("an end");
        assert!(error.is_some_and(|error| error.contains("not INIT")));
        kernel.finish();
    }
}

#[test]
fn an_end_before_init_is_told() {
    let (result_sender, result_receiver) = std::sync::mpsc::channel();
    let kernel = MockKernel::start(move |fd| {
        let device = shunt_fuse::Device::new(fd).unwrap();
        let session =
            shunt_fuse::Session::<MemFs>::negotiate(MemFs::new(), Config::new(Profile::Passthrough), device);
        result_sender.send(matches!(session, Err(NegotiationError::NoInit(_)))).unwrap();
    });
    kernel.finish();
    assert!(result_receiver.recv_timeout(Duration::from_secs(10)).unwrap());
}
