//! Generates the service traits and the dispatch of calls from the method names. The messages are written by hand (src/proto), so that
//! no protobuf compiler is needed.

use tonic_build::manual::{Builder, Method, Service};

/// The methods that are served. Others of the specification are answered with UNIMPLEMENTED.
const SERVICES: [(&str, &[&str]); 3] = [
    ("Identity", &["GetPluginInfo", "GetPluginCapabilities", "Probe"]),
    (
        "Controller",
        &[
            "CreateVolume",
            "DeleteVolume",
            "ValidateVolumeCapabilities",
            "GetCapacity",
            "ControllerGetCapabilities",
            "ControllerExpandVolume",
        ],
    ),
    (
        "Node",
        &[
            "NodeStageVolume",
            "NodeUnstageVolume",
            "NodePublishVolume",
            "NodeUnpublishVolume",
            "NodeGetVolumeStats",
            "NodeGetCapabilities",
            "NodeGetInfo",
        ],
    ),
];

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let services: Vec<Service> = SERVICES.iter().map(|(name, methods)| service(name, methods)).collect();
    Builder::new()
        .build_client(std::env::var_os("CARGO_FEATURE_CLIENT").is_some())
        .build_transport(false)
        .compile(&services);
}

fn service(name: &str, methods: &[&str]) -> Service {
    methods
        .iter()
        .fold(Service::builder().name(name).package("csi.v1"), |service, method| {
            service.method(
                Method::builder()
                    .name(snake_case(method))
                    .route_name(*method)
                    .input_type(format!("crate::proto::{method}Request"))
                    .output_type(format!("crate::proto::{method}Response"))
                    .codec_path("tonic_prost::ProstCodec")
                    .build(),
            )
        })
        .build()
}

fn snake_case(name: &str) -> String {
    let mut snake = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
    }
    snake
}
